"""What `dream new` says when it is done."""

import shlex
from importlib.util import find_spec

from .new import Created

LISTED = 8
"""Replaced files named one by one; of more, the number is given."""


def describe(created: Created, path: str) -> str:
    """The tree, what became of the commit, and the commands to run next.

    `path` is the project's folder as the user wrote it.
    """
    enter = [f"cd {shlex.quote(path)}"] if path not in (".", "./") else []
    # The wheel of `dream` brings no torch: whoever only scaffolds has none yet.
    install = [] if find_spec("torch") else ["pip install -e ."]
    commands = [*enter, *install, created.options.launch, "dream check"]
    blocks = [created.tree, f"{created.git}\n{created.check}"]
    if created.replaced:
        blocks.append(f"Replaced: {_listed(created.replaced)}.")
    blocks.append("\n".join(["Next:", *(f"  {command}" for command in commands)]))
    return "\n\n".join(blocks)


def _listed(names: list[str]) -> str:
    more = [f"{len(names) - LISTED} more"] if len(names) > LISTED else []
    return ", ".join([*names[:LISTED], *more])
