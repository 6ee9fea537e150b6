"""`dream add launch`: the update of a project to the same answers and one launcher more."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ..answers import find_project, read_answers
from ..choices import check_choice
from ..presets import LAUNCHERS
from ..update import show as show_update
from ..update.journal import Write
from ..update.run import Updated, update
from . import show
from .added import Added
from .draft import resume


def add_launcher(path: Path, name: str, *, pretend: bool = False) -> tuple[Added, Updated | None]:
    """Bring the project that `path` lies in to have a launcher. Raises `DreamError`.

    None where it has it already.
    """
    check_choice("The launcher", name, LAUNCHERS)
    project = find_project(path)
    if not pretend:
        resume(project)
    added = Added(project=project, kind="launch", name=name, is_pretended=pretend)
    launchers = read_answers(project).options.launchers
    if name in launchers:
        return added, None
    done = update(project, {"launch": ",".join([*launchers, name])}, dry_run=pretend)
    writes = [Write(c.path, c.before, c.after) for c in done.changes if c.writes]
    notes = [f"{change.path}: {change.why}" for change in done.changes if change.conflicts]
    return replace(added, writes=writes, notes=notes), done


def as_text(added: Added, done: Updated | None) -> Iterator[str]:
    """What `dream update` says, or that there was nothing to do."""
    yield from show.as_text(added) if done is None else show_update.as_text(done, done.is_dry)
