"""Where terms and acts stand in the source; worked out only where a finding asks."""

import ast
from collections.abc import Mapping

from ..facts import Place
from ..source import Module


class Written:
    """A node of a syntax tree in its module."""

    __slots__ = ("module", "node")

    def __init__(self, module: Module, node: ast.AST) -> None:
        self.module = module
        self.node = node

    @property
    def place(self) -> Place:
        node = self.node
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            return self.module.name_place(node)
        if isinstance(node, ast.Module):
            return Place(self.module.shown, 1, 1, 1, 1)
        if isinstance(node, (ast.If, ast.While)):
            node = node.test
        return self.module.place(node)

    @property
    def text(self) -> str:
        place = self.module.place(self.node)
        lines = self.module.lines[place.line - 1 : place.end_line]
        if lines:
            lines[-1] = lines[-1][: place.end_column - 1]
            lines[0] = lines[0][place.column - 1 :]
        return "\n".join(lines)


class WrittenCall(Written):
    """A call in its module."""

    __slots__ = ()
    node: ast.Call

    def _inner(self, node: ast.AST) -> Written:
        return Written(self.module, node)

    @property
    def callee(self) -> Written:
        return self._inner(self.node.func)

    @property
    def receiver(self) -> Written | None:
        func = self.node.func
        return self._inner(func.value) if isinstance(func, ast.Attribute) else None

    @property
    def arguments(self) -> tuple[Written, ...]:
        return tuple(map(self._inner, self.node.args))

    @property
    def keywords(self) -> Mapping[str, Written]:
        return {item.arg or "**": self._inner(item.value) for item in self.node.keywords}

    @property
    def end(self) -> Place:
        path, _, _, line, column = self.place
        *before, last = self._inside()
        stripped = last.rstrip()
        if not stripped and before:
            # The closing bracket has a line of its own: write at the end of the one before.
            line -= 1
            while len(before) > 1 and not before[-1].strip():
                before.pop()
                line -= 1
            column = len(self.module.lines[line - 1].rstrip()) + 1
            return Place(path, line, column, line, column)
        column -= 1 + len(last) - len(stripped)
        return Place(path, line, column, line, column)

    @property
    def separator(self) -> str:
        if not self.node.args and not self.node.keywords:
            return ""
        return " " if "".join(self._inside()).rstrip().endswith(",") else ", "

    def _inside(self) -> list[str]:
        """The lines between the brackets."""
        text = self.text
        return (
            text[len(self.callee.text) :].lstrip().removeprefix("(").removesuffix(")").split("\n")
        )
