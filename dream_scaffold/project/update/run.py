"""From a project on disk to the updated one."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ... import __version__
from ...errors import DreamError
from ..answers import Answers, changed, read_answers
from ..options import Options
from ..place import uninterrupted
from ..render import render_project, ruff
from ..snapshot import FOLDER, Snapshot, read_snapshot, write_snapshot
from .journal import ASIDE, PLAN, STAGE, UNDO, Write, apply, finish, undo
from .plan import Change, Sides, plan
from .threeway import Labels, has_markers

SKIPPED = {".git", ".venv", "venv", FOLDER, "__pycache__", "node_modules", "runs", "build"}
LARGEST = 1_000_000
"""Bytes of a file that may be a generated one under another name."""


@dataclass(frozen=True, kw_only=True)
class Updated:
    """What an update did, or would do."""

    project: Path
    before: Options
    after: Options
    version: str
    """Of the template that the project was made from."""

    changes: list[Change]
    is_dry: bool

    @property
    def conflicts(self) -> int:
        return sum(change.conflicts for change in self.changes)

    @property
    def is_current(self) -> bool:
        """Whether there was nothing to do."""
        return not any(change.writes for change in self.changes) and self.before == self.after


def update(project: Path, overrides: dict[str, Any], *, dry_run: bool = False) -> Updated:
    """Bring `project` to the shipped template and to the answers in `overrides`.

    Raises `DreamError`, with nothing changed, where that cannot be done.
    """
    if (project / FOLDER / PLAN).is_file() and not dry_run:
        finish(project)  # What a kill has cut off.
    answers = read_answers(project)
    options = changed(answers.options, overrides)
    with TemporaryDirectory(prefix="dream-update-") as folder:
        fresh = Path(folder) / options.name
        fresh.mkdir()
        render_project(options, fresh)
        write_snapshot(fresh)
        new = dict(_texts(fresh))
        snapshot = read_snapshot(project)
        yours = _read(project, {*snapshot.files, *snapshot.lost, *new})
        _refuse_markers(yours)
        sides = Sides(
            base=snapshot.files,
            yours=yours | _others(project, snapshot, yours, new),
            new=new,
            labels=_labels(answers, options),
            lost=snapshot.lost,
            linked=frozenset(path for path in yours if (project / path).is_symlink()),
            tidy=_Tidy(project),
        )
        changes = plan(sides)
        writes = [Write(c.path, c.before, c.after) for c in changes if c.writes]
        writes += _record(project, fresh)
        if writes and not dry_run:
            _carry_out(project, writes)
    return Updated(
        project=project,
        before=answers.options,
        after=options,
        version=answers.version,
        changes=changes,
        is_dry=dry_run,
    )


def take_back(project: Path) -> str:
    """Undo the last update; what to tell. Raises `DreamError` where there is none."""
    with uninterrupted():
        if (project / FOLDER / PLAN).is_file():
            finish(project)
        edited = undo(project)
    if edited is None:
        fact = "There is no update to take back."
        raise DreamError(fact, "Only the last update can be, and only once.")
    told = "The last update is taken back."
    if edited:
        told += f"\nWhat you have edited since then is kept in {FOLDER}/{ASIDE}/: "
        told += ", ".join(edited)
    return told


def _carry_out(project: Path, writes: list[Write]) -> None:
    try:
        with uninterrupted():
            apply(project, writes)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        fact = f"The update could not be written: {error.strerror}{where}."
        committed = (project / FOLDER / PLAN).is_file()
        remedy = "Mend that and run `dream update` again: it goes on where it stopped."
        raise DreamError(fact, remedy if committed else "Nothing was changed.") from error


def _labels(answers: Answers, options: Options) -> Labels:
    """What the sides are called: by version, and by the answers that differ."""
    old, new = vars(answers.options), vars(options)
    differing = [name for name in new if old[name] != new[name]]
    before, after = (
        ", ".join([f"template {version}", *(f"{name} {values[name]}" for name in differing)])
        for version, values in ((answers.version, old), (__version__, new))
    )
    return Labels("yours", before, after)


def _texts(project: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(project.rglob("*")):
        name = path.relative_to(project)
        if path.is_file() and name.parts[0] != FOLDER:
            yield name.as_posix(), path.read_bytes()


def _read(project: Path, names: set[str]) -> dict[str, bytes]:
    """Those of the files that are there. Raises `DreamError` for one that cannot be read."""
    found: dict[str, bytes] = {}
    for name in sorted(names):
        path = project / name
        if path.is_dir():
            fact = f"{name} is a folder, and the template has a file of that name."
            raise DreamError(fact, "Move it away and run the update again.")
        try:
            found[name] = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise DreamError(f"{name} cannot be read: {error.strerror}.", "Mend that.") from None
    return found


def _others(
    project: Path, snapshot: Snapshot, yours: dict[str, bytes], new: dict[str, bytes]
) -> dict[str, bytes]:
    """The other texts of a project, where a generated file may be among them under a new name."""
    gone = [
        name
        for name, content in snapshot.files.items()
        if name not in yours and name in new and new[name] != content
    ]
    endings = {Path(name).suffix for name in gone}
    found: dict[str, bytes] = {}
    folders = [project] if gone else []
    while folders:
        for path in sorted(folders.pop().iterdir()):
            if path.is_symlink() or path.name in SKIPPED:
                continue
            if path.is_dir():
                folders.append(path)
            elif path.suffix in endings and path.stat().st_size <= LARGEST:
                name = path.relative_to(project).as_posix()
                if name not in yours and name not in snapshot.files:
                    found[name] = path.read_bytes()
    return found


def _refuse_markers(yours: dict[str, bytes]) -> None:
    marked = [
        name for name, content in yours.items() if has_markers(content.decode(errors="replace"))
    ]
    if marked:
        raise DreamError(
            f"Conflicts of an earlier update are still open in {', '.join(marked)}.",
            "Resolve them, or take the update back with `dream update --abort`.",
        )


def _record(project: Path, fresh: Path) -> Iterator[Write]:
    """The new snapshot and answers: they change with the files, or not at all."""
    old = {
        path.relative_to(project).as_posix(): path.read_bytes()
        for path in sorted((project / FOLDER).rglob("*"))
        if path.is_file() and path.relative_to(project).parts[1] not in (STAGE, UNDO, ASIDE, PLAN)
    }
    new = {
        path.relative_to(fresh).as_posix(): path.read_bytes()
        for path in sorted((fresh / FOLDER).rglob("*"))
        if path.is_file()
    }
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            yield Write(name, old.get(name), new.get(name))


class _Tidy:
    """A file in the project's own format, as ruff reads it from the project's settings."""

    def __init__(self, project: Path) -> None:
        self.project = project

    def __call__(self, path: str, content: bytes) -> bytes | None:
        if not path.endswith(".py"):
            return content
        command = [ruff(), "format", "--quiet", "--no-cache", "--stdin-filename", path, "-"]
        done = subprocess.run(command, cwd=self.project, input=content, capture_output=True)
        return done.stdout if done.returncode == 0 else None
