"""A new project appears whole or not at all.

It is made in a hidden folder on the target's own file system, and one rename puts it
where it belongs. In a folder that exists, files are moved one by one, and a failure
moves all of them back.
"""

import filecmp
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from ..errors import DreamError

ENDING_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


def check_target(target: Path, *, force: bool) -> None:
    """Raise `DreamError` where no project can be made at `target`."""
    if not target.parent.is_dir():
        fact = f"There is no folder {target.parent} to make {target.name} in."
        raise DreamError(fact, f"Create it first: mkdir -p {target.parent}")
    if os.path.lexists(target) and not target.is_dir():
        raise DreamError(f"{target} exists and is not a folder.", "Choose another path.")
    if target.is_dir() and any(target.iterdir()) and not force:
        raise DreamError(
            f"{target} exists and is not empty.",
            "Choose another path, or add the project to this folder with --force, "
            "which replaces the files that have the name of a new one.",
        )
    folder = target if target.is_dir() else target.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        fact = f"You have no permission to write in {folder}."
        raise DreamError(fact, "Choose another path, or ask for that permission.")


@contextmanager
def staged(target: Path) -> Iterator[Path]:
    """A hidden folder to make the project of `target` in; it is gone after the block.

    Inside the block the signals that end a process raise `SystemExit`, so that a
    project half made is removed whatever ends the command.
    """
    beside = target if target.is_dir() else target.parent
    stage = beside / f".{target.name}.dream-new-{os.getpid()}"
    with _raising_signals():
        try:
            stage.mkdir()
            yield stage
        finally:
            with uninterrupted():
                shutil.rmtree(stage, ignore_errors=True)


def put(project: Path, target: Path) -> list[str]:
    """Move a finished project to `target`; return the files there that it changed.

    `project` lies in the staging folder of `target`, which also keeps what is replaced
    until all is done.
    """
    if not project.is_relative_to(target):
        if os.path.lexists(target):
            raise DreamError(f"{target} appeared meanwhile.", "Choose another path.")
        os.rename(project, target)
        return []
    changed: list[str] = []
    backup = project.with_name("replaced")
    backup.mkdir()
    with uninterrupted(), ExitStack() as undo:
        for number, (source, place) in enumerate(_moves(project, target)):
            if os.path.lexists(place):
                if place.is_symlink() or not filecmp.cmp(source, place, shallow=False):
                    changed.append(place.relative_to(target).as_posix())
                kept = backup / str(number)
                os.rename(place, kept)
                undo.callback(os.rename, kept, place)
            os.rename(source, place)
            undo.callback(os.rename, place, source)
        undo.pop_all()
    return changed


def _moves(project: Path, target: Path) -> Iterator[tuple[Path, Path]]:
    """What to move where: whole folders where the target has none of that name."""
    for source in sorted(project.iterdir()):
        place = target / source.name
        if not os.path.lexists(place):
            yield source, place
        elif source.is_dir() != place.is_dir() or (source.is_dir() and place.is_symlink()):
            kind = "folder" if source.is_dir() else "file"
            fact = f"{place} is in the way: the project has a {kind} of that name."
            raise DreamError(fact, "Move it away, or choose another path.")
        elif source.is_dir():
            yield from _moves(source, place)
        else:
            yield source, place


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C and the signals that end a process have no effect inside the block."""
    with _handled([signal.SIGINT, *ENDING_SIGNALS], signal.SIG_IGN):
        yield


@contextmanager
def _raising_signals() -> Iterator[None]:
    def leave(number: int, frame: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    with _handled(ENDING_SIGNALS, leave):
        yield


@contextmanager
def _handled(signals: list[signal.Signals], handler: "signal._HANDLER") -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
