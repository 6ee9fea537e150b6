"""The health of the project around: its check, its runtime, its updates."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from .. import __version__, resources
from ..errors import DreamError
from ..project.answers import ANSWERS, find_project, read_answers
from ..project.render import RUNTIME
from ..project.requirements import missing_packages
from ..project.snapshot import FOLDER, Snapshot, read_snapshot
from ..project.update.journal import PLAN
from ..project.update.threeway import has_markers
from .reading import Reading


def probe(folder: Path) -> Iterator[Reading]:
    """Readings under the topic `project`; none where there is no project."""
    try:
        project = find_project(folder)
    except DreamError:
        yield Reading("project", "project", "note", f"{folder} lies in no project of `dream new`")
        return
    try:
        version = read_answers(project).version
    except DreamError as error:
        yield Reading("project", ANSWERS, "bad", error.fact, error.remedy)
        return
    if version == __version__:
        yield Reading("project", "template", "ok", version)
    else:
        text = f"{version}, and this is dream {__version__}"
        yield Reading("project", "template", "note", text, "dream update")
    if missing := missing_packages(project):
        text = f"not installed: {', '.join(missing)}"
        yield Reading("project", "requirements", "bad", text, "pip install -e .")
    else:
        yield Reading("project", "requirements", "ok", "installed")
    snapshot = read_snapshot(project)
    yield from _update(project, snapshot)
    yield from _runtime(project, snapshot)
    yield from _check(project)


def _update(project: Path, snapshot: Snapshot) -> Iterator[Reading]:
    if (project / FOLDER / PLAN).is_file():
        remedy = "dream update goes on where it stopped; dream update --abort takes it back."
        yield Reading("project", "update", "bad", "the last one was cut off", remedy)
    names = sorted({*snapshot.files, *snapshot.lost})
    marked = [name for name in names if _is_marked(project / name)]
    if marked:
        remedy = "Resolve what stands between <<<<<<< and >>>>>>>, or dream update --abort."
        yield Reading("project", "conflicts", "bad", f"open in {', '.join(marked)}", remedy)
    if snapshot.lost:
        few = ", ".join(sorted(snapshot.lost)[:3]) + (" ..." if len(snapshot.lost) > 3 else "")
        text = f"what was generated is not known of {few}"
        remedy = f"Restore {FOLDER}/ from git: without it an update marks every difference."
        yield Reading("project", "snapshot", "note", text, remedy)
    else:
        yield Reading("project", "snapshot", "ok", f"{len(snapshot.files)} files known")


def _is_marked(path: Path) -> bool:
    return path.is_file() and has_markers(path.read_text(encoding="utf-8", errors="replace"))


def _runtime(project: Path, snapshot: Snapshot) -> Iterator[Reading]:
    own = {name: content for name, content in snapshot.files.items() if name.startswith(RUNTIME)}
    edited = [
        name
        for name, content in own.items()
        if not (project / name).is_file() or (project / name).read_bytes() != content
    ]
    behind = [
        name
        for name, content in own.items()
        if (shipped := resources.runtime().parent / name).is_file()
        and sha256(shipped.read_bytes()).digest() != sha256(content).digest()
    ]
    if behind:
        text = f"{len(behind)} files are not those of this dream"
        yield Reading("project", "runtime", "note", text, "dream update")
    elif own:
        yield Reading("project", "runtime", "ok", "the one of this dream")
    if edited:
        few = ", ".join(edited[:3]) + (" ..." if len(edited) > 3 else "")
        text = f"yours differs in {len(edited)}: {few}; an update merges them"
        yield Reading("project", "runtime edits", "note", text)


def _check(project: Path) -> Iterator[Reading]:
    from ..check import Options, check

    try:
        findings = check(Options(paths=(str(project),))).findings
    except DreamError as error:
        yield Reading("project", "dream check", "bad", error.fact, error.remedy)
        return
    count = dict.fromkeys(("error", "warning"), 0)
    for finding in findings:
        if finding.severity in count:
            count[finding.severity] += 1
    shown = ", ".join(f"{n} {severity}{'s' * (n != 1)}" for severity, n in count.items() if n)
    if count["error"]:
        yield Reading("project", "dream check", "bad", shown, "dream check says where and why.")
    elif count["warning"]:
        yield Reading("project", "dream check", "note", shown, "dream check says where and why.")
    else:
        yield Reading("project", "dream check", "ok", "nothing found")
