"""What a check does to the world around it: the events that Python itself tells of."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

FORBIDDEN = (
    "ctypes.",
    "os.chmod",
    "os.chown",
    "os.exec",
    "os.fork",
    "os.kill",
    "os.link",
    "os.mkdir",
    "os.posix_spawn",
    "os.putenv",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.spawn",
    "os.startfile",
    "os.symlink",
    "os.system",
    "os.truncate",
    "os.utime",
    "shutil.",
    "socket.",
    "subprocess.",
    "tempfile.",
    "urllib.",
)
"""Events, by how their names begin, that change something or reach out."""

WRITES = 0x3
"""`O_WRONLY` and `O_RDWR`."""


class _Ear:
    """An audit hook cannot be taken out again; this one can be closed."""

    def __init__(self) -> None:
        self.deeds: list[str] | None = None
        self.folder = ""

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.deeds is None:
            return
        if event == "exec":
            self._ran(arguments[0])
        elif event == "import":
            name, path = arguments[0], arguments[1]
            if isinstance(path, str) and path.startswith(self.folder):
                self.deeds.append(f"imported {name}")
        elif event == "open":
            path, mode, flags = arguments
            if flags & WRITES or set(mode or "") & set("wax+"):
                self._changed(f"opened {path} to write")
        elif event.startswith(FORBIDDEN):
            self._changed(f"{event}{arguments!r:.100}")

    def _ran(self, code: object) -> None:
        name = code.co_filename if isinstance(code, CodeType) else "?"
        made_up = name.startswith(("<", "?")) and not name.startswith("<frozen")
        # `dataclasses` and `namedtuple` write methods as text when a module is imported.
        if name.startswith(self.folder) or (made_up and not _in_import()):
            self._changed(f"ran {name}")

    def _changed(self, deed: str) -> None:
        if self.deeds is not None and "__pycache__" not in deed:
            self.deeds.append(deed)


def _in_import() -> bool:
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
    return False


_ear: _Ear | None = None


@contextmanager
def watched(folder: str) -> Iterator[list[str]]:
    """Collects what happens inside that a check of the source in `folder` must never do.

    No code from there runs or is imported, nor any made of text; no file is opened to be
    written, none is made or removed; no process, no connection.
    """
    global _ear
    if _ear is None:
        _ear = _Ear()
        sys.addaudithook(_ear)
    deeds: list[str] = []
    _ear.deeds, _ear.folder = deeds, folder
    try:
        yield deeds
    finally:
        _ear.deeds = None
