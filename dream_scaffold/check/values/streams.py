"""Iterators: values that give their items once."""

import ast
from collections.abc import Callable

from .domain import Class, External, Function, FunctionNode, Record, Scope, Unknown, Value
from .enumerations import is_enumeration, members
from .literals import is_open, spoil

Make = Callable[[], "list[Value] | None"]


class Stream:
    """A generator, or what `zip`, `map` and their like return. Its items are made when asked."""

    __slots__ = ("_items", "_make", "is_open", "manager")

    def __init__(self, make: Make) -> None:
        self._make: Make | None = make
        self._items: list[Value] = []
        self.manager: tuple[Function, Scope] | None = None
        """The generator, where it is the body of a context manager."""

        self.is_open = False
        """Whether it is unknown what it gives."""

    def _fill(self) -> None:
        if self._make is not None:
            make, self._make = self._make, None
            items = make()
            self.is_open = items is None
            self._items = items or []

    def take(self) -> "list[Value] | None":
        """All that is left; None where it is unknown."""
        self._fill()
        items, self._items = self._items, []
        return None if self.is_open else items

    def put_back(self, items: list[Value]) -> None:
        self._items = items

    def next(self, default: Value) -> Value:
        """The next item, or `default` behind the last."""
        self._fill()
        if self.is_open:
            return Unknown("is of unknown length")
        return self._items.pop(0) if self._items else default


def is_named_tuple(cls: "Class | type") -> bool:
    """Whether a class of the project derives from `NamedTuple` itself."""
    return isinstance(cls, Class) and any(
        isinstance(base, External) and base.last == "NamedTuple" for base in cls.bases
    )


def iterate(value: Value) -> list[Value] | None:
    """What a loop over `value` runs through; None where it is not decidable."""
    if isinstance(value, Stream):
        return value.take()
    if isinstance(value, Record) and is_named_tuple(value.cls) and value.opened is None:
        return list(value.fields.values())
    if isinstance(value, Class) and is_enumeration(value):
        return list(members(value).values())
    if is_open(value):
        return None
    if isinstance(value, set):
        # In what order texts come differs from run to run.
        has_order = len(value) < 2 or not any(isinstance(item, str) for item in value)
        return list(value) if has_order else None
    if isinstance(value, (list, tuple, dict, str, bytes, range)):
        return list(value)
    return None


def give_away(value: Value, why: Unknown, depth: int = 0) -> None:
    """Hand a value to code that may do anything to it, and to what it holds."""
    if depth > 8:
        return
    if isinstance(value, Record):
        if value.opened is not why:
            value.forget(why)
    elif isinstance(value, (list, dict, set, tuple)):
        for item in list(value.values()) if isinstance(value, dict) else list(value)[:1000]:
            give_away(item, why, depth + 1)
        spoil(value, why)


DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def is_generator(node: FunctionNode) -> bool:
    """Whether a function yields."""
    pending: list[ast.AST] = list(node.body) if isinstance(node.body, list) else []
    while pending:
        inner = pending.pop()
        if isinstance(inner, (ast.Yield, ast.YieldFrom)):
            return True
        if not isinstance(
            inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
        ):
            pending += ast.iter_child_nodes(inner)
    return False
