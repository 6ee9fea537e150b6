"""Displays, comprehensions, formatted texts and subscripts."""

import ast
import re
from collections.abc import Callable, Iterable
from typing import Any

from .attributes import Attributes
from .classes import find_member
from .domain import Arguments, Class, External, Record, Scope, Site, Unknown, Value
from .enumerations import is_enumeration, members
from .literals import is_open, literal, truth
from .operators import LONGEST, because, undecided
from .streams import Stream, iterate

Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp

WIDE = re.compile(r"\d{4}|\*")
"""In a format: widths that would make a text too large, or that are given elsewhere."""


class Displays(Attributes):
    """Evaluates what makes containers and texts, and what takes parts of them."""

    steps: int

    def evaluate(self, node: ast.expr, scope: Scope) -> Value:
        raise NotImplementedError

    def bind_target(self, target: ast.expr, value: Value, scope: Scope) -> None:
        raise NotImplementedError

    def escape(self, arguments: Arguments, site: Site) -> Unknown:
        raise NotImplementedError

    def may_raise(self) -> None:
        raise NotImplementedError

    def decided(self, callee: Value, given: list[Value], site: Site) -> Any:
        raise NotImplementedError

    def failed(self, error: str, site: Site, reason: str) -> Value:
        raise NotImplementedError

    def items(
        self, nodes: Iterable[ast.expr], scope: Scope, kind: Callable[[Any], Value]
    ) -> Value:
        found: list[Value] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                inner = iterate(self.evaluate(node.value, scope))
                if inner is None or len(found) + len(inner) > LONGEST:
                    return undecided(node, scope)
                found += inner
            else:
                found.append(self.evaluate(node, scope))
        return kind(found)

    def set_display(self, node: ast.Set, scope: Scope) -> Value:
        return self.make_set(self.items(node.elts, scope, list), node, scope)

    def make_set(self, items: Value, node: ast.AST, scope: Scope) -> Value:
        if not isinstance(items, list) or not literal(items):
            return undecided(node, scope)
        try:
            return set(items)
        except TypeError:
            return undecided(node, scope, "raises TypeError")

    def mapping(self, node: ast.Dict, scope: Scope) -> Value:
        found: dict[Value, Value] = {}
        for key_node, value_node in zip(node.keys, node.values, strict=True):
            if key_node is None:
                value = self.evaluate(value_node, scope)
                if not isinstance(value, dict) or is_open(value):
                    return undecided(value_node, scope)
                found |= value
                continue
            key = self.evaluate(key_node, scope)
            value = self.evaluate(value_node, scope)
            if not is_key(key):
                return undecided(key_node, scope)
            found[key] = value
        return found

    def comprehension(self, node: Comprehension, scope: Scope) -> Value:
        first = self.evaluate(node.generators[0].iter, scope)
        if isinstance(node, ast.GeneratorExp):
            return Stream(lambda: self.collect(node, first, scope))
        found = self.collect(node, first, scope)
        if found is None:
            return undecided(node, scope)
        if isinstance(node, ast.SetComp):
            return self.make_set(found, node, scope)
        if isinstance(node, ast.DictComp):
            keys = [pair[0] for pair in found]  # type: ignore[index]
            if not all(map(is_key, keys)):
                return undecided(node.key, scope)
            return dict(found)  # type: ignore[arg-type]
        return found

    def collect(self, node: Comprehension, first: Value, scope: Scope) -> list[Value] | None:
        """What a comprehension makes, pairs for a dict; None where that is not decidable."""
        inner = Scope(scope.module, scope)
        inner.is_class = False
        found: list[Value] = []

        def run(depth: int) -> bool:
            if depth == len(node.generators):
                if isinstance(node, ast.DictComp):
                    key = self.evaluate(node.key, inner)
                    found.append((key, self.evaluate(node.value, inner)))
                else:
                    found.append(self.evaluate(node.elt, inner))
                return len(found) <= LONGEST
            source = node.generators[depth]
            items = iterate(self.evaluate(source.iter, inner) if depth else first)
            return items is not None and all(
                self.passes(source, item, inner, lambda: run(depth + 1)) for item in items
            )

        return found if run(0) else None

    def passes(
        self, source: ast.comprehension, item: Value, scope: Scope, then: Callable[[], bool]
    ) -> bool:
        """One turn of a comprehension. False where it is not decidable."""
        self.bind_target(source.target, item, scope)
        for test in source.ifs:
            known = truth(self.evaluate(test, scope))
            if not known:
                return known is False
        return then()

    def formatted(self, node: ast.JoinedStr, scope: Scope) -> Value:
        text = ""
        for part in node.values:
            inner = part.value if isinstance(part, ast.FormattedValue) else part
            value = self.evaluate(inner, scope)
            if not literal(value):
                return because(value, node, scope)
            try:
                text += self.format_part(part, value, scope)
            except (ValueError, TypeError):
                # A number of more digits than Python writes out, a format that does not fit.
                return self.failed("ValueError", Site(scope.module, node), "raises ValueError")
            if len(text) > LONGEST:
                return undecided(node, scope, "is too large")
        return text

    def format_part(self, part: ast.expr, value: Value, scope: Scope) -> str:
        """Raises `ValueError` or `TypeError` where the format does not fit."""
        if not isinstance(part, ast.FormattedValue):
            return str(value)
        if part.conversion in (ord("r"), ord("a")):
            value = repr(value) if part.conversion == ord("r") else ascii(value)
        elif part.conversion == ord("s"):
            value = str(value)
        if part.format_spec is None:
            return str(value)
        spec = self.evaluate(part.format_spec, scope)
        if not isinstance(spec, str) or WIDE.search(spec):
            raise ValueError
        return format(value, spec)

    def slice(self, node: ast.Slice, scope: Scope) -> Value:
        ends = [
            None if part is None else self.evaluate(part, scope)
            for part in (node.lower, node.upper, node.step)
        ]
        unknown = next((end for end in ends if not (end is None or isinstance(end, int))), None)
        return slice(*ends) if unknown is None else because(unknown, node, scope)

    def subscript(self, node: ast.Subscript, scope: Scope) -> Value:
        value = self.evaluate(node.value, scope)
        if isinstance(value, Class):
            found = self.enum_member(value, node, scope)
            return value if found is None else found
        is_class = isinstance(value, External) and value.last[:1].isupper()
        if is_class or isinstance(value, type):
            return value  # A generic class with its parameters.
        key = self.evaluate(node.slice, scope)
        if isinstance(value, Record):
            return self.record_item(value, key, node, scope)
        if isinstance(value, (list, tuple, dict, str)):
            if is_open(value) or not (isinstance(key, slice) or is_key(key)):
                return because(key, node, scope)
            try:
                return value[key]  # type: ignore[call-overload,index,no-any-return]
            except (LookupError, TypeError, ValueError) as error:
                return self.failed(type(error).__name__, Site(scope.module, node), "is not there")
        if isinstance(value, External):
            return self.failed("", Site(scope.module, node), Unknown().reason)
        return because(value, node, scope)

    def enum_member(self, cls: Class, node: ast.Subscript, scope: Scope) -> Value:
        """What `cls["NAME"]` is; None where `cls` is no enumeration."""
        if not is_enumeration(cls):
            return None
        name = self.evaluate(node.slice, scope)
        found = members(cls).get(name) if isinstance(name, str) else None
        return found or undecided(node, scope)

    def record_item(self, record: Record, key: Value, node: ast.AST, scope: Scope) -> Value:
        if isinstance(record.cls, Class):
            found = find_member(record.cls, "__getitem__")
            if found is not None:
                site = Site(scope.module, node)
                return self.call(self.bind(found[1], record), Arguments([key], {}, {}), site)
        items = iterate(record)
        if items is None or not isinstance(key, (int, slice)):
            return because(key, node, scope)
        try:
            return tuple(items)[key]
        except (LookupError, TypeError, ValueError) as error:
            return self.failed(type(error).__name__, Site(scope.module, node), "is not there")


def is_key(value: Value) -> bool:
    """Whether a decided value can be the key of a dict."""
    if isinstance(value, tuple):
        return all(map(is_key, value))
    if isinstance(value, Record):
        return set(value.fields) == {"name", "value"}  # A member of an enumeration.
    return literal(value) and not isinstance(value, (list, dict, set))
