"""The imports that new text needs and its module lacks."""

import ast
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ..facts import Edit, Place
from ..source import Module
from .displays import appended


class Import(NamedTuple):
    """What binds one name."""

    module: str
    name: str | None = None
    """None: the module itself."""

    alias: str | None = None

    @property
    def part(self) -> str:
        """As it stands behind `import`."""
        known = self.name or self.module
        return f"{known} as {self.alias}" if self.alias else known


def needed(body: str, offered: Mapping[str, Import]) -> dict[str, Import]:
    """Of the imports on offer, those whose names a text reads."""
    nodes = ast.walk(ast.parse(body))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return {name: found for name, found in offered.items() if name in names}


def import_edits(module: Module, wanted: Mapping[str, Import]) -> Iterator[Edit]:
    """The edits that bind the names of `wanted` which the top level of a module does not."""
    known = set(bound(module.tree))
    missing = [found for name, found in wanted.items() if name not in known]
    nodes = module.tree.body
    imports = [node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
    lines: list[tuple[str, str]] = []
    for owner in dict.fromkeys(found.module for found in missing):
        parts = [found.part for found in missing if found.module == owner and found.name]
        alike = [node for node in imports if isinstance(node, ast.ImportFrom)]
        alike = [node for node in alike if node.module == owner and not node.level]
        open_one = next((node for node in alike if node.names[0].name != "*"), None)
        if parts and open_one is not None:
            yield from appended(module, open_one, parts)
        elif parts:
            lines.append((owner, f"from {owner} import {', '.join(parts)}"))
        whole = [found for found in missing if found.module == owner and not found.name]
        lines += [(owner, f"import {found.part}") for found in whole]
    if lines:
        yield from _new_lines(module, imports, lines)


def _new_lines(
    module: Module, imports: list[ast.Import | ast.ImportFrom], lines: list[tuple[str, str]]
) -> Iterator[Edit]:
    """Each after the imports of its package, else after all; where there is none, on top."""
    after: dict[int, list[str]] = {}
    for owner, text in lines if imports else ():
        package = owner.partition(".")[0]
        alike = [node for node in imports if _package(node) == package]
        node = (alike or imports)[-1]
        after.setdefault(node.end_lineno or node.lineno, []).append(text)
    for line, texts in after.items():
        column = len(module.lines[line - 1]) + 1
        written = "".join(f"\n{text}" for text in texts)
        yield Edit(Place(module.shown, line, column, line, column), written)
    if imports or not module.tree.body:
        return
    first = module.tree.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    line = (first.end_lineno or first.lineno) + 1 if is_docstring else first.lineno
    written = "".join(f"{text}\n" for _, text in lines)
    yield Edit(Place(module.shown, line, 1, line, 1), written)


def imports_of(tree: ast.Module) -> dict[str, Import]:
    """Name -> what binds it, of the absolute imports at the top level of a module."""
    found: dict[str, Import] = {}
    for node in tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                found[name] = Import(alias.name, None, alias.asname)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                found[alias.asname or alias.name] = Import(node.module, alias.name, alias.asname)
    return found


def bound(tree: ast.Module) -> Iterator[str]:
    """The names that the top level of a module binds."""
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def _package(node: ast.Import | ast.ImportFrom) -> str:
    """The first part of what is imported; empty for a relative import."""
    if isinstance(node, ast.Import):
        return node.names[0].name.partition(".")[0]
    return "" if node.level else (node.module or "").partition(".")[0]
