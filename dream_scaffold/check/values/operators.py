"""Operators on abstract values, of bounded size."""

import ast
import operator
import re
from collections.abc import Callable
from typing import Any

from .domain import (
    UNDECIDABLE,
    External,
    Record,
    Scope,
    Site,
    Unknown,
    Value,
)
from .enumerations import is_enumeration, plain
from .literals import is_open, literal

LARGEST_NUMBER = 1 << 256
LONGEST = 10_000
"""Items of a container or characters of a text that evaluation may make."""

OPERATORS: dict[type[ast.AST], Callable[[Any, Any], object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.BitXor: operator.xor,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def operate(op: ast.AST, left: Value, right: Value, node: ast.AST, scope: Scope) -> Value:
    """A binary operator on literals, of bounded size."""
    left, right = plain(left), plain(right)
    if is_open(left) or is_open(right):
        return undecided(node, scope)
    sized = isinstance(left, (list, tuple, dict, str, bytes)) and isinstance(right, type(left))
    joins = sized and isinstance(op, (ast.Add, ast.BitOr))
    if not joins and not (literal(left) and literal(right)):
        return because(left if isinstance(left, Unknown) else right, node, scope)
    if isinstance(op, (ast.Pow, ast.LShift)) and not (_small(left) and _small(right)):
        return undecided(node, scope, "is too large")
    if _huge(left) or _huge(right):
        return undecided(node, scope, "is too large")
    if isinstance(op, ast.Mult) and not (_modest(left, right) or _modest(right, left)):
        return undecided(node, scope, "is too large")
    if joins and len(left) + len(right) > LONGEST:  # type: ignore[arg-type]
        return undecided(node, scope, "is too large")
    function = OPERATORS.get(type(op))
    if function is None or (isinstance(left, bytes) and isinstance(op, ast.Mod)):
        return undecided(node, scope)
    if isinstance(left, str) and isinstance(op, ast.Mod) and re.search(r"\d{4}|\*", left):
        return undecided(node, scope, "is too large")
    try:
        result = function(left, right)
    except (TypeError, ValueError, ArithmeticError) as error:
        return undecided(node, scope, f"raises {type(error).__name__}")
    return undecided(node, scope, "is too large") if _huge(result) else result


def compare(op: ast.cmpop, left: Value, right: Value, node: ast.AST, scope: Scope) -> Value:
    """One comparison, where both sides are decided enough."""
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        return because(left if isinstance(left, Unknown) else right, node, scope)
    if isinstance(left, Record) and isinstance(right, Record):
        alike = is_enumeration(left.cls) and is_enumeration(right.cls)
        if alike and not isinstance(op, (ast.In, ast.NotIn)):
            return (left is right) is isinstance(op, (ast.Is, ast.Eq))
    left, right = plain(left), plain(right)
    if is_open(right):
        return undecided(node, scope)
    if isinstance(op, (ast.Is, ast.IsNot)):
        decidable = not isinstance(left, External) and not isinstance(right, External)
        if decidable and any(item is None or isinstance(item, bool) for item in (left, right)):
            return (left is right) is isinstance(op, ast.Is)
    elif isinstance(op, (ast.In, ast.NotIn)):
        if literal(left) and isinstance(right, (list, tuple, str, dict, set)):
            try:
                found = left in right  # type: ignore[operator]
                if found or literal(right) or isinstance(right, dict):
                    return found is isinstance(op, ast.In)
            except TypeError:
                pass
    elif literal(left) and literal(right):
        return operate(op, left, right, node, scope)
    elif isinstance(left, External) and isinstance(right, External) and left.name == right.name:
        return True if isinstance(op, ast.Eq) else undecided(node, scope)
    return undecided(node, scope)


def undecided(node: ast.AST, scope: Scope, reason: str = UNDECIDABLE) -> Unknown:
    return Unknown(reason, Site(scope.module, node))


def because(value: Value, node: ast.AST, scope: Scope) -> Unknown:
    """An unknown that hands on the reason of another."""
    if isinstance(value, Unknown):
        return Unknown(value.reason, value.site)
    return undecided(node, scope)


def _huge(value: Value) -> bool:
    return isinstance(value, int) and abs(value) >= LARGEST_NUMBER


def _small(value: Value) -> bool:
    return isinstance(value, (int, float)) and abs(value) <= 256


def _modest(value: Value, times: Value) -> bool:
    """Whether `value * times` stays small enough to compute."""
    if isinstance(value, int):
        return abs(value) < LARGEST_NUMBER and (
            not isinstance(times, (str, bytes, list, tuple)) or abs(value) * len(times) <= LONGEST
        )
    return isinstance(value, (float, complex))
