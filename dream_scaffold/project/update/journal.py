"""Changes of a project that happen as a whole: a kill leaves the old project or the new one.

All new and old contents are staged first; one rename of the plan is the commit point. After
it, carrying the plan out again, from wherever it stopped, ends in the same project.
"""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from ..snapshot import FOLDER

PLAN, STAGE, UNDO, ASIDE = "update.json", "update", "undo", "set-aside"


@dataclass(frozen=True)
class Write:
    """One file that changes: from `before` to `after`; None: it is not there."""

    path: str
    before: bytes | None
    after: bytes | None


def apply(project: Path, writes: list[Write]) -> None:
    """Carry out all of `writes` or, if the process ends before the commit point, none."""
    folder = project / FOLDER
    stage = folder / STAGE
    shutil.rmtree(stage, ignore_errors=True)
    for number, write in enumerate(writes):
        for side, content in (("new", write.after), ("old", write.before)):
            if content is not None:
                _write(stage / side / str(number), content)
    steps = [
        {"path": write.path, "old": _digest(write.before), "new": _digest(write.after)}
        for write in writes
    ]
    _write(stage / PLAN, json.dumps(steps, indent=1).encode())
    os.replace(stage / PLAN, folder / PLAN)
    finish(project)


def finish(project: Path) -> bool:
    """Carry out a plan that is committed; clear away one that is not. Whether there was one."""
    folder = project / FOLDER
    stage = folder / STAGE
    if not (folder / PLAN).is_file():
        shutil.rmtree(stage, ignore_errors=True)
        return False
    for number, path, old, new in _steps(folder / PLAN) if stage.is_dir() else ():
        target = project / path
        now = _digest(target.read_bytes()) if target.is_file() else None
        if now == new:
            continue
        if now != old:  # Edited between the kill and now.
            _set_aside(project, path)
        if new is None:
            target.unlink(missing_ok=True)
            _remove_empty(target.parent, project)
        else:
            _put(stage / "new" / str(number), target)
    if stage.is_dir():
        shutil.rmtree(folder / UNDO, ignore_errors=True)
        shutil.copyfile(folder / PLAN, stage / PLAN)
        os.rename(stage, folder / UNDO)
    os.unlink(folder / PLAN)
    return True


def undo(project: Path) -> list[str] | None:
    """Take the last update back. What has been edited since then is set aside, and named.

    None where there is nothing to take back.
    """
    folder = project / FOLDER
    if not (folder / UNDO / PLAN).is_file():
        return None
    edited: list[str] = []
    writes: list[Write] = []
    for number, path, old, new in _steps(folder / UNDO / PLAN):
        target = project / path
        now = target.read_bytes() if target.is_file() else None
        if _digest(now) not in (new, old):
            edited.append(path)
            _set_aside(project, path)
        before = folder / UNDO / "old" / str(number)
        writes.append(Write(path, now, before.read_bytes() if old is not None else None))
    apply(project, writes)
    shutil.rmtree(folder / UNDO, ignore_errors=True)
    return edited


def _steps(plan: Path) -> Iterator[tuple[int, str, str | None, str | None]]:
    for number, step in enumerate(json.loads(plan.read_bytes())):
        yield number, step["path"], step["old"], step["new"]


def _digest(content: bytes | None) -> str | None:
    return None if content is None else sha256(content).hexdigest()


def _put(staged: Path, target: Path) -> None:
    """Replace a file by a staged one, of which a copy stays; its mode bits are kept."""
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.dream-update")
    shutil.copyfile(staged, beside)
    if target.exists():
        shutil.copymode(target, beside)
    os.replace(beside, target)


def _set_aside(project: Path, path: str) -> None:
    """Keep a copy of what would be lost."""
    kept = project / FOLDER / ASIDE / path
    number = 0
    while kept.exists():
        number += 1
        kept = project / FOLDER / ASIDE / f"{path}.{number}"
    kept.parent.mkdir(parents=True, exist_ok=True)
    if (project / path).is_file():
        shutil.copy2(project / path, kept)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _remove_empty(folder: Path, top: Path) -> None:
    """Remove folders that the last file has left."""
    while folder != top:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent
