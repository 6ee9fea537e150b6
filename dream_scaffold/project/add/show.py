"""What an addition did, for people and for programs."""

import json
import os
from collections.abc import Iterator
from typing import Any

from ..difference import difference
from ..update.journal import Write
from ..verify import check_project
from .added import Added


def as_text(added: Added) -> Iterator[str]:
    """Line by line; of what is only pretended, the difference."""
    if not added.writes:
        yield f"{added.kind} {added.name} is there already: nothing was changed."
        return
    if added.is_pretended:
        for write in added.writes:
            yield from _diff(write)
        yield from added.notes
        yield "Nothing was written."
        return
    yield f"{added.project.name}: {added.kind} {added.name}"
    for write in added.writes:
        yield f"  {_verdict(write):8}{write.path}"
    yield from added.notes
    yield check_project(added.project)
    yield "`dream update --abort` takes this back."


def as_json(added: Added) -> str:
    """One object; its keys stay."""
    report: dict[str, Any] = {
        "version": 1,
        "project": os.fspath(added.project),
        "kind": added.kind,
        "name": added.name,
        "is_there_already": not added.writes,
        "pretended": added.is_pretended,
        "changes": [
            {
                "path": write.path,
                "verdict": _verdict(write),
                "diff": "\n".join(_diff(write)),
            }
            for write in added.writes
        ],
        "notes": added.notes,
    }
    return json.dumps(report, indent=2)


def _verdict(write: Write) -> str:
    return "new" if write.before is None else "changed"


def _diff(write: Write) -> Iterator[str]:
    return difference(write.path, write.before, write.after)
