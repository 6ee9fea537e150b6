"""The format of a project, kept where a file has it and not forced upon one that has another."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ..render import ruff


def tidied(
    project: Path, name: str, before: bytes | None, after: bytes, own: Sequence[str]
) -> bytes:
    """`after`, in the order of imports and the layout that ruff gives files of the project.

    Each only where `before` has it, or there is no `before`. `own` are modules of the project
    that are not on disk yet.
    """
    if not name.endswith(".py"):
        return after
    known = f"lint.isort.known-first-party={json.dumps(list(own))}"
    sort = ["check", "--select", "I", "--fix-only", *(["--config", known] if own else [])]
    for command in (sort, ["format"]):
        if before is None or _run(project, name, command, before) == before:
            after = _run(project, name, command, after) or after
    return after


def _run(project: Path, name: str, command: list[str], content: bytes) -> bytes | None:
    """What ruff makes of a file; None where it can make nothing of it."""
    whole = [ruff(), *command, "--quiet", "--no-cache", "--stdin-filename", name, "-"]
    done = subprocess.run(whole, cwd=project, input=content, capture_output=True)
    return done.stdout if done.returncode == 0 else None
