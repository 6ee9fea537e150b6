"""Expressions: literals, names, attributes, operators, displays, comprehensions."""

import ast
import builtins
from collections.abc import Callable
from typing import Any

from ..hinge import configs
from ..source import Sources
from .displays import Displays
from .domain import (
    External,
    Function,
    Scope,
    Site,
    Unknown,
    Value,
)
from .literals import Rest, truth
from .operators import because, compare, operate, undecided
from .signals import Exhausted, Raised
from .streams import give_away, iterate

BUILTINS = frozenset(dir(builtins))


class Expressions(Displays):
    """Evaluates expressions. Calls and statements come with the subclasses."""

    def __init__(
        self, sources: Sources, decisions: tuple[bool, ...] = (), steps: int = 50_000
    ) -> None:
        self.sources = sources
        self.steps = steps
        self.decisions = list(decisions)
        self.next_decision = 0
        self.receivers: dict[Scope, Callable[[Value], None]] = {}
        """Scope of a running generator -> what is done with each thing that it yields."""

        self.wild = 0
        self.guards: list[bool] = []
        """For each `try` around what is evaluated, whether it may still be said to raise."""

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
            ast.Set: self.set_display,
            ast.Dict: self.mapping,
            ast.BinOp: self.binary,
            ast.UnaryOp: self.unary,
            ast.BoolOp: self.boolean,
            ast.Compare: self.comparison,
            ast.IfExp: self.conditional,
            ast.JoinedStr: self.formatted,
            ast.Subscript: self.subscript,
            ast.Slice: self.slice,
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

    def failed(self, error: str, site: Site, reason: str) -> Value:
        """What surely raises, or may do so ("" for any error), where somebody may catch it."""
        if self.guards:
            if error:
                raise Raised(External(f"builtins.{error}"))
            self.may_raise()
        return Unknown(reason, site)

    def may_raise(self) -> None:
        """Foreign code in a `try` raises, on another path; once a `try`, to bound their number."""
        if self.guards and self.guards[-1]:
            self.guards[-1] = False
            if not self.choose():
                raise Raised

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

    def generator(self, node: ast.Yield | ast.YieldFrom, scope: Scope) -> Value:
        inside: Scope | None = scope
        while inside is not None and inside not in self.receivers:
            inside = inside.outer
        value = None if node.value is None else self.evaluate(node.value, scope)
        if inside is None:
            return undecided(node, scope)
        receive = self.receivers[inside]
        if isinstance(node, ast.Yield):
            receive(value)
            return None
        items = iterate(value)
        for item in [Rest("is of unknown length")] if items is None else items:
            receive(item)
        return None

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

    def conditional(self, node: ast.IfExp, scope: Scope) -> Value:
        taken = self.decide(self.evaluate(node.test, scope))
        return self.evaluate(node.body if taken else node.orelse, scope)

    def walrus(self, node: ast.NamedExpr, scope: Scope) -> Value:
        value = self.evaluate(node.value, scope)
        while scope.outer is not None and scope.function is None and not scope.is_class:
            scope = scope.outer  # A comprehension.
        self.bind_target(node.target, value, scope)
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
        if isinstance(value, (int, float)) and not isinstance(node.op, ast.UAdd):
            if isinstance(node.op, ast.USub):
                return -value
            return ~value if isinstance(value, int) else undecided(node, scope)
        return value if isinstance(node.op, ast.UAdd) else because(value, node, scope)

    def binary(self, node: ast.BinOp, scope: Scope) -> Value:
        left, right = self.evaluate(node.left, scope), self.evaluate(node.right, scope)
        result = operate(node.op, left, right, node, scope)
        if isinstance(result, Unknown) and result.reason.startswith("raises "):
            error = result.reason.removeprefix("raises ")
            return self.failed(error, Site(scope.module, node), result.reason)
        if isinstance(result, Unknown):
            for item in (left, right):
                if isinstance(item, (list, tuple, dict)):
                    # What it holds may be changed through what nobody knows of.
                    for inner in item.values() if isinstance(item, dict) else item:
                        give_away(inner, result)
        return result

    def comparison(self, node: ast.Compare, scope: Scope) -> Value:
        left = self.evaluate(node.left, scope)
        result: Value = True
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(right_node, scope)
            if isinstance(op, (ast.In, ast.NotIn)) and not isinstance(right, str):
                items = iterate(right) if not isinstance(right, (set, dict)) else None
                right = right if items is None else items
            result = compare(op, left, right, node, scope)
            if result is False or isinstance(result, Unknown):
                return result
            left = right
        return result

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
