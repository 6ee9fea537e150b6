"""A new project appears whole or not at all.

It is made in a hidden folder on the target's own file system, and one rename puts it
where it belongs. In a folder that exists, files are moved one by one, and a failure
moves all of them back; after a kill, the next `dream new` there does.
"""

import filecmp
import json
import os
import shlex
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

REPLACED, MOVES = "replaced", "moves.json"
"""In the hidden folder: what made room, and what is moved where."""

ENDING_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


def check_target(target: Path, *, force: bool) -> None:
    """Raise `DreamError` where no project can be made at `target`."""
    if not target.parent.is_dir():
        raise _no_folder(target)
    if os.path.lexists(target) and not target.is_dir():
        raise DreamError(f"{target} exists and is {_kind(target)}.", "Choose another path.")
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


def _no_folder(target: Path) -> DreamError:
    """Why nothing can be made where `target` shall lie."""
    for place in target.parents:
        if os.path.lexists(place) and not place.is_dir():
            return DreamError(f"{place} is {_kind(place)}.", "Choose another path.")
    fact = f"There is no folder {target.parent} to make {target.name} in."
    return DreamError(fact, f"Create it first: mkdir -p {shlex.quote(os.fspath(target.parent))}")


def _kind(place: Path) -> str:
    """What lies there instead of a folder."""
    is_loose = place.is_symlink() and not os.path.exists(place)
    return "a symbolic link to nothing" if is_loose else "not a folder"


@contextmanager
def refused_by_the_system(target: Path) -> Iterator[None]:
    """Raise `DreamError` where the file system refuses what happens inside the block."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error).partition("\n")[0]
        where = f" ({error.filename})" if error.filename else ""
        fact = f"{target} could not be written: {reason}{where}."
        raise DreamError(fact, "Nothing was left behind. Mend that and run it again.") from error


@contextmanager
def staged(target: Path) -> Iterator[Path]:
    """A hidden folder to make the project of `target` in; it is gone after the block.

    Inside the block the signals that end a process raise `SystemExit`, so that a
    project half made is removed whatever ends the command.
    """
    stage = _beside(target) / f"{_prefix(target)}{os.getpid()}"
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
    backup = project.with_name(REPLACED)
    backup.mkdir()
    moves = list(_moves(project, target))
    listed = [[os.fspath(source), os.fspath(place)] for source, place in moves]
    project.with_name(MOVES).write_text(json.dumps(listed), encoding="utf-8")
    with uninterrupted(), ExitStack() as undo:
        for number, (source, place) in enumerate(moves):
            if os.path.lexists(place):
                if place.is_symlink() or not filecmp.cmp(source, place, shallow=False):
                    changed.append(place.relative_to(target).as_posix())
                kept = backup / str(number)
                os.rename(place, kept)
                undo.callback(os.rename, kept, place)
            os.rename(source, place)
            undo.callback(os.rename, place, source)
        undo.pop_all()
        project.with_name(MOVES).unlink()
    return changed


def clear_up(target: Path) -> None:
    """Take back what a killed `dream new` has left at `target`, and remove its folder."""
    folder = _beside(target)
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        return
    for stage in folder.glob(f"{_prefix(target)}*"):
        number = stage.name.removeprefix(_prefix(target))
        if number.isdigit() and stage.is_dir() and not _is_alive(int(number)):
            _take_back(stage)
            shutil.rmtree(stage, ignore_errors=True)


def _take_back(stage: Path) -> None:
    try:
        moves = json.loads((stage / MOVES).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    for number, (source, place) in enumerate(moves):
        kept = stage / REPLACED / str(number)
        if not os.path.lexists(source) and os.path.lexists(place):
            os.rename(place, source)
        if os.path.lexists(kept):
            os.rename(kept, place)


def _beside(target: Path) -> Path:
    return target if target.is_dir() else target.parent


def _prefix(target: Path) -> str:
    return f".{target.name}.dream-new-"


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


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
