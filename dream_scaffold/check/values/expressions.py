"""Expressions: literals, names, attributes, operators, displays, comprehensions."""

import ast
import builtins
from collections.abc import Callable, Iterable
from typing import Any

from ..hinge import configs
from ..source import Sources
from .attributes import Attributes
from .domain import (
    Class,
    External,
    Function,
    Scope,
    Site,
    Unknown,
    Value,
)
from .literals import literal, truth
from .operators import LONGEST, because, compare, iterate, operate, undecided
from .signals import Exhausted, Generator

BUILTINS = frozenset(dir(builtins))


class Expressions(Attributes):
    """Evaluates expressions. Calls and statements come with the subclasses."""

    def __init__(
        self, sources: Sources, decisions: tuple[bool, ...] = (), steps: int = 50_000
    ) -> None:
        self.sources = sources
        self.steps = steps
        self.decisions = list(decisions)
        self.next_decision = 0
        self.untried: list[tuple[bool, ...]] = []
        """Decisions that lead to the paths not taken."""

        self.handlers: dict[type[ast.AST], Callable[[Any, Scope], Value]] = {
            ast.Constant: lambda node, scope: node.value,
            ast.Name: self.name,
            ast.Attribute: lambda node, scope: self.attribute(
                self.evaluate(node.value, scope), node.attr, Site(scope.module, node)
            ),
            ast.Call: self.call_node,
            ast.Tuple: lambda node, scope: self.items(node.elts, scope, tuple),
            ast.List: lambda node, scope: self.items(node.elts, scope, list),
            ast.Set: lambda node, scope: self.items(node.elts, scope, list),
            ast.Dict: self.mapping,
            ast.BinOp: self.binary,
            ast.UnaryOp: self.unary,
            ast.BoolOp: self.boolean,
            ast.Compare: self.comparison,
            ast.IfExp: self.conditional,
            ast.JoinedStr: self.formatted,
            ast.Subscript: self.subscript,
            ast.Lambda: self.function,
            ast.ListComp: self.comprehension,
            ast.GeneratorExp: self.comprehension,
            ast.SetComp: self.comprehension,
            ast.DictComp: self.comprehension,
            ast.NamedExpr: self.walrus,
            ast.Await: lambda node, scope: self.evaluate(node.value, scope),
            ast.Yield: self.generator,
            ast.YieldFrom: self.generator,
        }

    def call_node(self, node: ast.Call, scope: Scope) -> Value:
        raise NotImplementedError

    # Decisions: what is not decidable is tried both ways, one way a run.

    def choose(self) -> bool:
        """Take one side of a branch, and leave the other for another run."""
        if self.next_decision == len(self.decisions):
            self.untried.append((*self.decisions, False))
            self.decisions.append(True)
        self.next_decision += 1
        return self.decisions[self.next_decision - 1]

    def decide(self, value: Value) -> bool:
        known = truth(value)
        return self.choose() if known is None else known

    # Evaluation.

    def evaluate(self, node: ast.expr, scope: Scope) -> Value:
        self.steps -= 1
        if self.steps < 0:
            raise Exhausted
        handler = self.handlers.get(type(node))
        if handler is None:
            return undecided(node, scope)
        return handler(node, scope)

    def generator(self, node: ast.expr, scope: Scope) -> Value:
        raise Generator

    def name(self, node: ast.Name, scope: Scope) -> Value:
        found = scope.lookup(node.id)
        if found is not None:
            return found.names[node.id]
        for module in scope.top.stars:
            if module.split(".")[0] == "dream_trainer" and hasattr(configs, node.id):
                return self.external(f"{module}.{node.id}")
        if node.id in BUILTINS:
            return External(f"builtins.{node.id}")
        if scope.top.stars:
            return External(f"{scope.top.stars[-1]}.{node.id}")
        return undecided(node, scope, "is not defined in the project")

    def items(
        self, nodes: Iterable[ast.expr], scope: Scope, kind: Callable[[Any], Value]
    ) -> Value:
        found: list[Value] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                inner = self.evaluate(node.value, scope)
                if not isinstance(inner, (list, tuple)) or len(found) + len(inner) > LONGEST:
                    return undecided(node, scope)
                found += inner
            else:
                found.append(self.evaluate(node, scope))
        return kind(found)

    def mapping(self, node: ast.Dict, scope: Scope) -> Value:
        found: dict[Value, Value] = {}
        for key_node, value_node in zip(node.keys, node.values, strict=True):
            value = self.evaluate(value_node, scope)
            if key_node is None:
                if not isinstance(value, dict):
                    return undecided(value_node, scope)
                found |= value
                continue
            key = self.evaluate(key_node, scope)
            if not literal(key) or isinstance(key, (list, dict, set)):
                return undecided(key_node, scope)
            found[key] = value
        return found

    def conditional(self, node: ast.IfExp, scope: Scope) -> Value:
        taken = self.decide(self.evaluate(node.test, scope))
        return self.evaluate(node.body if taken else node.orelse, scope)

    def walrus(self, node: ast.NamedExpr, scope: Scope) -> Value:
        value = self.evaluate(node.value, scope)
        scope.names[node.target.id] = value
        return value

    def boolean(self, node: ast.BoolOp, scope: Scope) -> Value:
        is_and = isinstance(node.op, ast.And)
        value: Value = None
        open_ = False
        for item in node.values:
            value = self.evaluate(item, scope)
            known = truth(value)
            if known is None:
                open_ = True
            elif known is not is_and and (not open_ or isinstance(value, bool)):
                # `unknown and False` is false whatever the unknown is.
                return value
        return undecided(node, scope) if open_ else value

    def unary(self, node: ast.UnaryOp, scope: Scope) -> Value:
        value = self.evaluate(node.operand, scope)
        if isinstance(node.op, ast.Not):
            known = truth(value)
            return because(value, node, scope) if known is None else not known
        if isinstance(node.op, ast.USub) and isinstance(value, (int, float)):
            return -value
        return value if isinstance(node.op, ast.UAdd) else because(value, node, scope)

    def binary(self, node: ast.BinOp, scope: Scope) -> Value:
        left, right = self.evaluate(node.left, scope), self.evaluate(node.right, scope)
        return operate(node.op, left, right, node, scope)

    def comparison(self, node: ast.Compare, scope: Scope) -> Value:
        left = self.evaluate(node.left, scope)
        result: Value = True
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(right_node, scope)
            result = compare(op, left, right, node, scope)
            if result is False or isinstance(result, Unknown):
                return result
            left = right
        return result

    def formatted(self, node: ast.JoinedStr, scope: Scope) -> Value:
        text = ""
        for part in node.values:
            inner = part.value if isinstance(part, ast.FormattedValue) else part
            value = self.evaluate(inner, scope)
            plain = not isinstance(part, ast.FormattedValue) or part.format_spec is None
            if not literal(value) or not plain:
                return undecided(node, scope)
            try:
                text += str(value)
            except ValueError:  # A number of more digits than Python writes out.
                return undecided(node, scope)
            if len(text) > LONGEST:
                return undecided(node, scope, "is too large")
        return text

    def subscript(self, node: ast.Subscript, scope: Scope) -> Value:
        value = self.evaluate(node.value, scope)
        is_class = isinstance(value, External) and value.last[:1].isupper()
        if is_class or isinstance(value, (Class, type)):
            return value  # A generic class with its parameters.
        if isinstance(node.slice, ast.Slice):
            return undecided(node, scope)
        key = self.evaluate(node.slice, scope)
        if isinstance(value, (list, tuple, dict, str)) and literal(key):
            try:
                return value[key]  # type: ignore[call-overload,index,no-any-return]
            except (LookupError, TypeError):
                return undecided(node, scope, "is not there")
        return because(value, node, scope)

    def function(self, node: ast.Lambda, scope: Scope) -> Value:
        return Function(node, scope.enclosing, self.defaults(node.args, scope))

    def defaults(self, parameters: ast.arguments, scope: Scope) -> dict[str, Value]:
        """Parameter -> the value of its default, evaluated where the function is defined."""
        positional = parameters.posonlyargs + parameters.args
        given = positional[len(positional) - len(parameters.defaults) :]
        pairs = list(zip(given, parameters.defaults, strict=True))
        for parameter, default in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True):
            if default is not None:
                pairs.append((parameter, default))
        return {parameter.arg: self.evaluate(default, scope) for parameter, default in pairs}

    def comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, scope: Scope
    ) -> Value:
        inner = Scope(scope.module, scope)
        found: list[tuple[Value, Value]] = []
        if len(node.generators) != 1 or not isinstance(node.generators[0].target, ast.Name):
            return undecided(node, scope)
        source = node.generators[0]
        items = iterate(self.evaluate(source.iter, scope))
        if items is None:
            return undecided(node, scope)
        for item in items:
            inner.names[source.target.id] = item  # type: ignore[attr-defined]
            tests = [truth(self.evaluate(test, inner)) for test in source.ifs]
            if None in tests:
                return undecided(node, scope)
            if all(tests):
                key = node.key if isinstance(node, ast.DictComp) else node.elt
                value = node.value if isinstance(node, ast.DictComp) else key
                found.append((self.evaluate(key, inner), self.evaluate(value, inner)))
        if isinstance(node, ast.DictComp):
            return dict(found) if all(literal(key) for key, _ in found) else Unknown("its keys")
        return [value for _, value in found]
