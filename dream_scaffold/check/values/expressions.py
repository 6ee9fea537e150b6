"""Expressions: literals, names, attributes, operators, displays, comprehensions."""

import ast
import operator
from collections.abc import Callable, Iterable
from typing import Any

from ..hinge import configs
from ..source import Module, Sources
from .classes import find_member, is_config
from .domain import (
    Arguments,
    Bound,
    Class,
    External,
    Function,
    Inherited,
    Method,
    Namespace,
    Preset,
    Record,
    Scope,
    Site,
    Super,
    Unknown,
    Value,
    literal,
    truth,
)

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

MODES = ("get", "items", "keys", "values", "update", "copy", "pop", "setdefault", "append",
         "extend", "insert", "upper", "lower", "strip", "split", "removeprefix", "removesuffix",
         "replace", "startswith", "endswith", "join", "is_integer", "bit_length", "index", "count")
"""Methods of literals and containers that evaluation may call."""


class Exhausted(Exception):
    """Evaluation took more steps than any configuration is worth."""


class Generator(Exception):
    """The function being evaluated is a generator."""


class Expressions:
    """Evaluates expressions. Calls and statements come with the subclasses."""

    def __init__(self, sources: Sources, decisions: tuple[bool, ...] = (), steps: int = 50_000):
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
            ast.Set: lambda node, scope: self.items(node.elts, scope, set),
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

    # What the subclasses bring.

    def call(self, callee: Value, arguments: Arguments, site: Site) -> Value:
        raise NotImplementedError

    def call_node(self, node: ast.Call, scope: Scope) -> Value:
        raise NotImplementedError

    def namespace(self, module: Module) -> Namespace:
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
            return self.unknown("cannot be decided from source", node, scope)
        return handler(node, scope)

    def unknown(self, reason: str, node: ast.AST, scope: Scope) -> Unknown:
        return Unknown(f"`{shorten(node)}` {reason}", Site(scope.module, node))

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
        return self.unknown("is not defined in the project", node, scope)

    def external(self, name: str) -> Value:
        """A foreign name; a parameter class of the runtime is the real class."""
        if name.startswith("dream_trainer."):
            found = getattr(configs, name.rpartition(".")[2], None)
            if isinstance(found, type):
                return found
        if name in ("typing.TYPE_CHECKING", "typing_extensions.TYPE_CHECKING"):
            return True
        if name in ("math.inf", "math.nan", "math.pi"):
            return float({"inf": "inf", "nan": "nan", "pi": "3.141592653589793"}[name[5:]])
        return External(name)

    def attribute(self, value: Value, name: str, site: Site) -> Value:
        if isinstance(value, Record):
            return self.record_attribute(value, name, site)
        if isinstance(value, Namespace):
            return self.member(value, name)
        if isinstance(value, Class):
            found = find_member(value, name)
            if found is not None:
                return self.bind(found[1], value)
            base = next((base for base in value.bases if isinstance(base, type)), None)
            if base is not None:
                return Preset(base, name) if callable(getattr(base, name, None)) else None
        if isinstance(value, type):
            if callable(getattr(value, name, None)):
                return Preset(value, name)
            default = getattr(value, name, None)
            if literal(default) and hasattr(value, name):
                return default
        if isinstance(value, External):
            return self.external(f"{value.name}.{name}")
        if isinstance(value, Super):
            return self.inherited(value, name)
        if isinstance(value, Unknown):
            return value
        if name in MODES and isinstance(value, (str, int, float, list, dict)):
            return Method(value, name)
        return Unknown(f"`{shorten(site.node)}` cannot be decided from source", site)

    def member(self, namespace: Namespace, name: str) -> Value:
        """What `module.name` is: a name in it or one of its submodules."""
        if name in namespace.scope.names:
            return namespace.scope.names[name]
        inner = self.sources.submodule(namespace.module, name)
        if isinstance(inner, Module):
            return self.namespace(inner)
        if isinstance(inner, str):
            return self.external(inner)
        if namespace.scope.stars:
            return self.external(f"{namespace.scope.stars[-1]}.{name}")
        return Unknown(f"`{namespace.module.name}` has no `{name}`")

    def record_attribute(self, record: Record, name: str, site: Site) -> Value:
        if name in record.fields:
            return record.fields[name]
        if isinstance(record.cls, Class):
            found = find_member(record.cls, name)
            if found is not None:
                member = found[1]
                if isinstance(member, Function) and member.kind == "property":
                    return self.call(Bound(member, record), Arguments([], {}, {}), site)
                return self.bind(member, record)
        return Unknown(f"`{shorten(site.node)}` cannot be decided from source", site)

    def bind(self, member: Value, receiver: Value) -> Value:
        """A member of a class as its object or the class itself sees it."""
        if isinstance(member, Function):
            cls = receiver.cls if isinstance(receiver, Record) else receiver
            if member.kind == "classmethod":
                return Bound(member, cls)
            if member.kind == "function" and isinstance(receiver, Record):
                return Bound(member, receiver)
        return member

    def inherited(self, value: Super, name: str) -> Value:
        cls = value.receiver.cls if isinstance(value.receiver, Record) else value.receiver
        if isinstance(cls, Class):
            found = find_member(cls, name, after=value.owner)
            if found is not None:
                return self.bind(found[1], value.receiver)
        return Inherited(value.owner, name, value.receiver)

    def items(self, nodes: Iterable[ast.expr], scope: Scope, kind: Callable[[Any], Value]) -> Value:
        found: list[Value] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                inner = self.evaluate(node.value, scope)
                if not isinstance(inner, (list, tuple)):
                    return self.unknown("cannot be decided from source", node, scope)
                found += inner
            else:
                found.append(self.evaluate(node, scope))
        return kind(found) if kind is not set or literal(found) else Unknown("a set of objects")

    def mapping(self, node: ast.Dict, scope: Scope) -> Value:
        found: dict[Value, Value] = {}
        for key_node, value_node in zip(node.keys, node.values, strict=True):
            value = self.evaluate(value_node, scope)
            if key_node is None:
                if not isinstance(value, dict):
                    return self.unknown("cannot be decided from source", value_node, scope)
                found |= value
                continue
            key = self.evaluate(key_node, scope)
            if not literal(key) or isinstance(key, (list, dict, set)):
                return self.unknown("cannot be decided from source", key_node, scope)
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
        undecided: Value = None
        for item in node.values:
            value = self.evaluate(item, scope)
            known = truth(value)
            if known is None:
                undecided = self.unknown("cannot be decided from source", node, scope)
            elif known is not is_and:
                # `unknown and False` is false whatever the unknown is.
                return value if undecided is None or value is is_and else not is_and
        return value if undecided is None else undecided

    def unary(self, node: ast.UnaryOp, scope: Scope) -> Value:
        value = self.evaluate(node.operand, scope)
        if isinstance(node.op, ast.Not):
            known = truth(value)
            return _because(value, node, scope) if known is None else not known
        if isinstance(node.op, ast.USub) and isinstance(value, (int, float)):
            return -value
        return value if isinstance(node.op, ast.UAdd) else _because(value, node, scope)

    def binary(self, node: ast.BinOp, scope: Scope) -> Value:
        left, right = self.evaluate(node.left, scope), self.evaluate(node.right, scope)
        return self.operate(node.op, left, right, node, scope)

    def operate(
        self, op: ast.AST, left: Value, right: Value, node: ast.AST, scope: Scope
    ) -> Value:
        """A binary operator on literals, of bounded size."""
        containers = isinstance(left, (list, tuple, dict)) and isinstance(right, type(left))
        joins = containers and isinstance(op, (ast.Add, ast.BitOr))
        if not joins and not (literal(left) and literal(right)):
            return _because(left if isinstance(left, Unknown) else right, node, scope)
        if isinstance(op, (ast.Pow, ast.LShift)) and not (_small(left) and _small(right)):
            return self.unknown("is too large", node, scope)
        if isinstance(op, ast.Mult) and not (_modest(left, right) or _modest(right, left)):
            return self.unknown("is too large", node, scope)
        function = OPERATORS.get(type(op))
        if function is None or (isinstance(op, ast.Mod) and isinstance(left, (str, bytes))):
            return self.unknown("cannot be decided from source", node, scope)
        try:
            return function(left, right)
        except (TypeError, ValueError, ArithmeticError) as error:
            return self.unknown(f"raises {type(error).__name__}", node, scope)

    def comparison(self, node: ast.Compare, scope: Scope) -> Value:
        left = self.evaluate(node.left, scope)
        result: Value = True
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(right_node, scope)
            result = self.compare(op, left, right, node, scope)
            if result is False or isinstance(result, Unknown):
                return result
            left = right
        return result

    def compare(
        self, op: ast.cmpop, left: Value, right: Value, node: ast.AST, scope: Scope
    ) -> Value:
        if isinstance(left, Unknown) or isinstance(right, Unknown):
            return _because(left if isinstance(left, Unknown) else right, node, scope)
        if isinstance(op, (ast.Is, ast.IsNot)):
            decidable = not isinstance(left, External) and not isinstance(right, External)
            if decidable and (left is None or right is None or isinstance(left, bool)):
                return (left is right) is isinstance(op, ast.Is)
        elif isinstance(op, (ast.In, ast.NotIn)):
            if literal(left) and isinstance(right, (list, tuple, str, dict, set)):
                try:
                    return (left in right) is isinstance(op, ast.In)  # type: ignore[operator]
                except TypeError:
                    pass
        elif literal(left) and literal(right):
            return self.operate(op, left, right, node, scope)
        elif isinstance(left, External) and isinstance(right, External):
            if left.name == right.name and isinstance(op, ast.Eq):
                return True
        return self.unknown("cannot be decided from source", node, scope)

    def formatted(self, node: ast.JoinedStr, scope: Scope) -> Value:
        text = ""
        for part in node.values:
            inner = part.value if isinstance(part, ast.FormattedValue) else part
            value = self.evaluate(inner, scope)
            plain = not isinstance(part, ast.FormattedValue) or part.format_spec is None
            if not literal(value) or not plain:
                return self.unknown("cannot be decided from source", node, scope)
            text += str(value)
        return text

    def subscript(self, node: ast.Subscript, scope: Scope) -> Value:
        value = self.evaluate(node.value, scope)
        if isinstance(value, (External, Class, type)):
            return value  # A generic class with its parameters.
        if isinstance(node.slice, ast.Slice):
            return self.unknown("cannot be decided from source", node, scope)
        key = self.evaluate(node.slice, scope)
        if isinstance(value, (list, tuple, dict, str)) and literal(key):
            try:
                return value[key]  # type: ignore[call-overload,index,no-any-return]
            except (LookupError, TypeError):
                return self.unknown("is not there", node, scope)
        return _because(value, node, scope)

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
            return self.unknown("cannot be decided from source", node, scope)
        source = node.generators[0]
        items = iterate(self.evaluate(source.iter, scope))
        if items is None:
            return self.unknown("cannot be decided from source", node, scope)
        for item in items:
            inner.names[source.target.id] = item  # type: ignore[attr-defined]
            tests = [truth(self.evaluate(test, inner)) for test in source.ifs]
            if None in tests:
                return self.unknown("cannot be decided from source", node, scope)
            if all(tests):
                key = node.key if isinstance(node, ast.DictComp) else node.elt
                value = node.value if isinstance(node, ast.DictComp) else key
                found.append((self.evaluate(key, inner), self.evaluate(value, inner)))
        if isinstance(node, ast.DictComp):
            return dict(found) if all(literal(key) for key, _ in found) else Unknown("its keys")
        return [value for _, value in found]


BUILTINS = frozenset(dir(__builtins__) if not isinstance(__builtins__, dict) else __builtins__)


def iterate(value: Value) -> list[Value] | None:
    """What a loop over `value` runs through; None where it is not decidable."""
    if isinstance(value, (list, tuple)):
        return list(value)
    if isinstance(value, (dict, set)):
        return list(value)
    if isinstance(value, str):
        return list(value)
    return None


def shorten(node: ast.AST) -> str:
    """The source of a node, short enough for a message."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 60 else text[:57] + "..."


def config_like(value: Value) -> bool:
    return isinstance(value, Record) and is_config(value.cls)


def _because(value: Value, node: ast.AST, scope: Scope) -> Unknown:
    """An unknown that hands on the reason of another."""
    if isinstance(value, Unknown):
        return Unknown(value.reason, value.site)
    return Unknown(f"`{shorten(node)}` cannot be decided from source", Site(scope.module, node))


def _small(value: Value) -> bool:
    return isinstance(value, (int, float)) and abs(value) <= 256


def _modest(value: Value, times: Value) -> bool:
    """Whether `value * times` stays small enough to compute."""
    if isinstance(value, int):
        return abs(value) < LARGEST_NUMBER and (
            not isinstance(times, (str, bytes, list, tuple)) or abs(value) * len(times) <= LONGEST
        )
    return isinstance(value, (float, complex))
