"""The rules that keep the source small and its layers apart; see the design document.

Each check is a function from source text to faults, tried on samples below before it is
held against `dream_scaffold` and `runtime/dream_trainer`.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCAFFOLD = ROOT / "dream_scaffold"
RUNTIME = ROOT / "runtime" / "dream_trainer"

MAX_FILE_LINES = 320
MAX_FUNCTION_LINES = 60
MAX_RUNTIME_LINES = 4_000
VAGUE_NAMES = {"dist", "helpers", "common", "base", "core", "manager", "misc", "util", "utils"}
PUBLIC_NAMES = {"runtime/dream_trainer/trainer/base.py", "runtime/dream_trainer/utils"}
"""Vague names that a public import path demands."""


@dataclass(frozen=True)
class Import:
    """One imported module: dotted name inside its package, line, and where it stands."""

    target: str
    line: int
    relative: bool
    typing_only: bool
    in_function: bool


@dataclass(frozen=True)
class Source:
    """One Python file of a package, and what it is called there."""

    package: Path
    path: Path

    @property
    def shown(self) -> str:
        return str(self.path.relative_to(ROOT))

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text())

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def module(self) -> str:
        """Dotted, without the package's own name: `callbacks.logger`; "" for the package."""
        inside = self.path.relative_to(self.package).with_suffix("")
        parts = inside.parts[:-1] if self.is_package else inside.parts
        return ".".join(parts)

    @cached_property
    def imports(self) -> list[Import]:
        return list(read_imports(self.tree, self.module, self.is_package, self.package.name))


def sources(package: Path) -> list[Source]:
    return [Source(package, path) for path in sorted(package.rglob("*.py"))]


def read_imports(tree: ast.Module, module: str, is_package: bool, package: str) -> list[Import]:
    """Every import of a module. Names inside `package` lose its name."""
    found: list[Import] = []

    def visit(node: ast.AST, typing_only: bool, in_function: bool) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.body:
                visit(child, True, in_function)
            for child in node.orelse:
                visit(child, typing_only, in_function)
            return
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            in_function = True
        if isinstance(node, ast.Import):
            for alias in node.names:
                add(alias.name, node, False)
        elif isinstance(node, ast.ImportFrom):
            add_from(node)
        for child in ast.iter_child_nodes(node):
            visit(child, typing_only, in_function)

        return

    def add(target: str, node: ast.stmt, relative: bool) -> None:
        inner = target.removeprefix(f"{package}.") if not relative else target
        typing_only, in_function = flags(node)
        found.append(Import(inner, node.lineno, relative, typing_only, in_function))

    def add_from(node: ast.ImportFrom) -> None:
        if not node.level:
            add(node.module or "", node, False)
            return
        parts = module.split(".") if module else []
        up = node.level - (1 if is_package else 0)
        anchor = parts[: len(parts) - up] if up else parts
        base = [*anchor, *(node.module.split(".") if node.module else [])]
        if node.module:
            add(".".join(base), node, True)
        else:
            for alias in node.names:
                add(".".join([*base, alias.name]), node, True)

    places: dict[int, tuple[bool, bool]] = {}

    def place(node: ast.AST, typing_only: bool, in_function: bool) -> None:
        places[id(node)] = (typing_only, in_function)
        inner = in_function or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        guarded = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        body = set(map(id, node.body)) if isinstance(node, ast.If) and guarded else set()
        for child in ast.iter_child_nodes(node):
            place(child, typing_only or id(child) in body, inner)

    def flags(node: ast.AST) -> tuple[bool, bool]:
        return places[id(node)]

    place(tree, False, False)
    visit(tree, False, False)
    return sorted(set(found), key=lambda item: item.line)
