"""The files of a project with one line on each, as its modules describe themselves."""

import ast
from collections.abc import Iterator
from pathlib import Path

CLOSED = (".dream", "dream_trainer")
"""Folders shown as one line."""

HIDDEN = (".git",)


def draw_tree(project: Path) -> str:
    """One line a file, indented by folder, each with its docstring's first line."""
    rows = list(_rows(project, 1))
    width = max((len(name) for name, _ in rows), default=0) + 2
    lines = [f"{name:{width}}{meaning}".rstrip() for name, meaning in rows]
    return "\n".join([f"{project.name}/", *lines])


def _rows(folder: Path, depth: int) -> Iterator[tuple[str, str]]:
    indent = "  " * depth
    for path in sorted(folder.iterdir()):
        if path.name in HIDDEN:
            continue
        if path.is_dir() and not path.is_symlink():
            yield f"{indent}{path.name}/", _meaning(path / "__init__.py")
            if path.name not in CLOSED:
                yield from _rows(path, depth + 1)
        else:
            yield f"{indent}{path.name}", _meaning(path)


def _meaning(path: Path) -> str:
    if path.suffix != ".py" or not path.is_file():
        return ""
    try:
        docstring = ast.get_docstring(ast.parse(path.read_bytes())) or ""
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ""  # A template of the user's may hold any text.
    return docstring.partition("\n")[0]
