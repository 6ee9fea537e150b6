"""What an update did, for people and for programs."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ... import __version__
from ..difference import difference
from ..render import RUNTIME
from ..verify import check_project
from .plan import Change
from .run import Updated

UNEDITED = ("new", "updated", "deleted")


def as_text(done: Updated, diff: bool) -> Iterator[str]:
    """Line by line."""
    if done.is_current:
        kept = [change for change in done.changes if change.verdict == "kept"]
        yield f"{done.project.name} is up to date with template {__version__}."
        yield from _table(kept)
        return
    yield f"{done.project.name}: {_step(done)}"
    yield from _table(done.changes)
    if diff:
        yield from _diffs(done)
    count = Counter(change.verdict for change in done.changes)
    shown = [f"{number} {verdict}" for verdict, number in count.items()]
    would = "Nothing was changed; an update would make it: " if done.is_dry else ""
    yield f"{would}{', '.join(shown) or 'no file changes'}."
    if done.is_dry:
        return
    if done.conflicts:
        yield "Resolve what stands between <<<<<<< and >>>>>>>, then run `dream check`."
    else:
        yield check_project(done.project)
    yield "`dream update --abort` takes this update back."


def _step(done: Updated) -> str:
    """From which template and answers to which."""
    parts = []
    if done.version != __version__:
        parts.append(f"template {done.version} -> {__version__}")
    old, new = vars(done.before), vars(done.after)
    parts += [f"{name} {old[name]} -> {new[name]}" for name in old if old[name] != new[name]]
    return ", ".join(parts) or f"template {__version__}"


def _table(changes: list[Change]) -> Iterator[str]:
    """One line a file; the runtime's files that nobody has edited are one line together."""
    plain = [
        change
        for change in changes
        if change.path.startswith(f"{RUNTIME}/")
        and change.verdict in ("new", "updated", "deleted")
    ]
    shown = [change for change in changes if change not in plain]
    rows = [(change.verdict, change.path, change.why) for change in shown]
    if plain:
        noun = "file" if len(plain) == 1 else "files"
        rows.append(("updated", f"{RUNTIME}/", f"{len(plain)} {noun} that you had not edited"))
    width = max((len(path) for _, path, _ in rows), default=0)
    for verdict, path, why in sorted(rows, key=lambda row: row[1]):
        yield f"  {verdict:8}  {path:{width}}  {why}"


def _diffs(done: Updated) -> Iterator[str]:
    for change in done.changes:
        if change.writes:
            yield from _diff(change)


def _diff(change: Change) -> Iterator[str]:
    return difference(change.path, change.before, change.after)


def as_json(done: Updated, diff: bool) -> str:
    """One object; its keys stay."""
    changes: list[dict[str, Any]] = []
    for change in done.changes:
        entry: dict[str, Any] = {
            "path": change.path,
            "verdict": change.verdict,
            "why": change.why,
            "conflicts": change.conflicts,
        }
        if diff:
            entry["diff"] = "\n".join(_diff(change)) if change.writes else ""
        changes.append(entry)
    report = {
        "version": 1,
        "project": os.fspath(done.project),
        "template": {"from": done.version, "to": __version__},
        "answers": {"from": vars(done.before), "to": vars(done.after)},
        "dry_run": done.is_dry,
        "changes": changes,
        "conflicts": done.conflicts,
    }
    return json.dumps(report, indent=2)
