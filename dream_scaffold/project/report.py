"""What `dream new` says when it is done."""

import shlex

from .new import Created


def describe(created: Created, path: str) -> str:
    """The tree, what became of the commit, and the commands to run next.

    `path` is the project's folder as the user wrote it.
    """
    enter = [f"cd {shlex.quote(path)}"] if path not in (".", "./") else []
    commands = [*enter, created.options.launch, "dream check"]
    blocks = [created.tree, f"{created.git}\n{created.check}"]
    if created.replaced:
        blocks.append(f"Replaced: {', '.join(created.replaced)}.")
    blocks.append("\n".join(["Next:", *(f"  {command}" for command in commands)]))
    return "\n\n".join(blocks)
