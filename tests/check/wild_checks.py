"""One check of source that was never meant for it, and how it ended."""

import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from dream_scaffold.check import Options, check
from dream_scaffold.check.report import render
from dream_scaffold.errors import DreamError

PATIENCE = 60
"""Seconds. A safety net below everything that is measured: no check comes near it."""


@dataclass(frozen=True)
class Outcome:
    """How one check ended."""

    path: str
    status: str
    """One of "answer", "nothing to check", "crash" and "endless"."""

    seconds: float
    errors: tuple[tuple[str, int, str], ...] = ()
    """Code, line and message of every finding of severity error."""

    note: str = ""

    @property
    def survived(self) -> bool:
        return self.status in ("answer", "nothing to check")


def examine(path: str, shown: str | None = None) -> Outcome:
    """Check the file or folder `path`, and print what was found in full."""
    begin = time.perf_counter()
    errors: tuple[tuple[str, int, str], ...] = ()
    note = ""
    try:
        with _patience():
            result = check(Options(paths=(path,), verbose=True))
            render(result)
        status = "answer"
        errors = tuple(
            (finding.code, finding.place.line, finding.message)
            for finding in result.findings
            if finding.severity == "error"
        )
    except DreamError as error:
        status, note = "nothing to check", error.fact
    except _Endless:
        status, note = "endless", _where(sys.exc_info()[1])
    except Exception as error:
        status, note = "crash", f"{type(error).__name__}: {error!s:.200} {_where(error)}"
    return Outcome(shown or path, status, time.perf_counter() - begin, errors, note)


def write(folder: Path, files: dict[str, str | bytes]) -> None:
    """Write files below `folder`; text goes out as Python source does."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = content.encode(errors="surrogatepass") if isinstance(content, str) else content
        path.write_bytes(raw)


def python_files_of(roots: list[str]) -> list[str]:
    """Every Python file below `roots`, whatever the folders are called."""
    return [
        os.path.join(parent, name)
        for root in roots
        for parent, folders, files in sorted(os.walk(root))
        for name in sorted(files)
        if name.endswith(".py")
    ]


class _Endless(BaseException):
    """The safety net."""


@contextmanager
def _patience() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise _Endless

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _where(error: BaseException | None) -> str:
    """The frames of our own that an exception came through, innermost last."""
    if error is None:
        return ""
    frames = [
        f"{Path(frame.filename).name}:{frame.lineno} {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
        if "dream_scaffold" in frame.filename
    ]
    return " > ".join(frames[:4] + ["..."] * (len(frames) > 8) + frames[4:][-4:])
