"""What `dream new` says when it is done."""

import json
import shlex
from pathlib import Path

from .new import Created, Preview
from .requirements import missing_packages

LISTED = 8
"""Replaced files named one by one; of more, the number is given."""


def describe(created: Created, path: str) -> str:
    """The tree, what became of the commit, and the commands to run next.

    `path` is the project's folder as the user wrote it.
    """
    commands = _next(created, path)
    blocks = [created.tree, f"{created.git}\n{created.check}"]
    if created.replaced:
        blocks.append(f"Replaced: {_listed(created.replaced)}.")
    blocks.append("\n".join(["Next:", *(f"  {command}" for command in commands)]))
    return "\n\n".join(blocks)


def as_json(created: Created, path: str) -> str:
    """One object; its keys stay."""
    report = {
        "version": 1,
        "project": str(created.folder),
        "answers": created.options.answers(),
        "files": _files(created.folder),
        "git": created.git,
        "check": created.check,
        "replaced": created.replaced,
        "next": _next(created, path),
    }
    return json.dumps(report, indent=2)


def pretended(preview: Preview) -> str:
    """The tree of a project that was not made, and what of a folder it would change."""
    blocks = [preview.tree]
    if preview.diff:
        blocks.append(preview.diff)
    count = len(preview.replaced)
    same = f", {count} of them there already with other contents" if count else ""
    blocks.append(f"Nothing was written: {len(preview.files)} files{same}.")
    return "\n\n".join(blocks)


def pretended_json(preview: Preview) -> str:
    """One object; its keys stay."""
    report = {
        "version": 1,
        "project": str(preview.folder),
        "answers": preview.options.answers(),
        "files": preview.files,
        "replaced": preview.replaced,
        "diff": preview.diff,
    }
    return json.dumps(report, indent=2)


def _files(project: Path) -> list[str]:
    return sorted(
        path.relative_to(project).as_posix()
        for path in project.rglob("*")
        if path.is_file() and path.relative_to(project).parts[0] != ".git"
    )


def _next(created: Created, path: str) -> list[str]:
    """The commands to run now."""
    enter = [f"cd {shlex.quote(path)}"] if path not in (".", "./") else []
    # The wheel of `dream` brings none of them: whoever only scaffolds has no torch yet.
    install = ["pip install -e ."] if missing_packages(created.folder) else []
    return [*enter, *install, created.options.command, "dream check"]


def _listed(names: list[str]) -> str:
    more = [f"{len(names) - LISTED} more"] if len(names) > LISTED else []
    return ", ".join([*names[:LISTED], *more])
