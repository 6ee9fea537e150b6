"""Expressions as terms; what happens on the way becomes acts."""

import ast
from collections.abc import Callable
from typing import Any

from ..facts import (
    Act,
    Attribute,
    Call,
    Code,
    Constant,
    Derived,
    Display,
    Foreign,
    Guard,
    Item,
    Path,
    Spot,
    Term,
    Unsure,
)
from ..values.classes import find_member
from ..values.domain import (
    Bound,
    Class,
    External,
    Function,
    Namespace,
    Partial,
    Record,
    Value,
)
from ..values.literals import literal
from ..values.statements import Interpreter
from .elements import Elements, either
from .frame import Frame, Local, Space
from .spots import Written, WrittenCall

MOST_STEPS = 60_000
"""Expressions and statements that one walk follows."""


class Expressions(Elements):
    """Turns expressions into terms. Calls and statements come with the subclasses."""

    def __init__(self, run: Interpreter) -> None:
        super().__init__()
        self.run = run
        self.acts: list[Act] = []
        self.steps = MOST_STEPS
        self.is_cut = False
        self.known: dict[tuple[int, str], Term] = {}
        self.handlers: dict[type[ast.AST], Callable[[Any, Frame], Term]] = {
            ast.Constant: lambda node, frame: Constant(node.value),
            ast.Name: self.name,
            ast.Attribute: self.attribute_node,
            ast.Call: self.call_node,
            ast.Tuple: lambda node, frame: self.display(node, "tuple", frame),
            ast.List: lambda node, frame: self.display(node, "list", frame),
            ast.Set: lambda node, frame: self.display(node, "set", frame),
            ast.Dict: self.mapping,
            ast.BinOp: lambda node, frame: self.derive(node.op, [node.left, node.right], frame),
            ast.UnaryOp: self.unary,
            ast.BoolOp: self.boolean,
            ast.Compare: self.comparison,
            ast.IfExp: self.conditional,
            ast.JoinedStr: self.formatted,
            ast.FormattedValue: self.format_value,
            ast.Subscript: self.subscript,
            ast.Lambda: lambda node, frame: Code("lambda", "function", Local(node, frame)),
            ast.ListComp: self.comprehension,
            ast.GeneratorExp: self.comprehension,
            ast.SetComp: self.comprehension,
            ast.DictComp: self.comprehension,
            ast.NamedExpr: self.walrus,
            ast.Await: lambda node, frame: self.term(node.value, frame),
            ast.Starred: lambda node, frame: self.term(node.value, frame),
            ast.Slice: lambda node, frame: self.derived("slice", _bounds(node), frame),
            ast.Yield: self.yielded,
            ast.YieldFrom: self.yielded,
        }

    def call_node(self, node: ast.Call, frame: Frame) -> Term:
        raise NotImplementedError

    def follow_property(
        self, function: Function, receiver: Term, frame: Frame, node: ast.AST
    ) -> Term:
        raise NotImplementedError

    def bind(self, target: ast.expr, value: Term, frame: Frame) -> None:
        raise NotImplementedError

    def term(self, node: ast.expr | None, frame: Frame) -> Term:
        self.steps -= 1
        if self.steps < 0:
            self.is_cut = True
            return Unsure()
        handler = self.handlers.get(type(node)) if node is not None else None
        return Unsure() if handler is None else handler(node, frame)

    def act(self, kind: Any, term: Term, node: ast.AST, frame: Frame, target: Any = None) -> None:
        spot = WrittenCall(frame.module, node) if isinstance(node, ast.Call) else None
        spot = spot or Written(frame.module, node)  # type: ignore[assignment]
        acts = (kind, term, spot, frame.guards, target, frame.via, frame.constructing)
        self.acts.append(Act(*acts))  # type: ignore[arg-type]

    # Names and attributes.

    def name(self, node: ast.Name, frame: Frame) -> Term:
        found = frame.lookup(node.id)
        if found is not None:
            return found
        key = (id(frame.scope), node.id)
        if key not in self.known:
            self.known[key] = self.lift(self.run.name(node, frame.scope))
        return self.known[key]

    def lift(self, value: Value) -> Term:
        """What a value of the evaluated program is as a term."""
        if isinstance(value, External):
            return Foreign(value.name)
        if isinstance(value, Function):
            return Code(value.name, "function", value)
        if isinstance(value, Bound):
            return Code(value.function.name, "function", value.function)
        if isinstance(value, Class):
            return Code(value.name, "class", value)
        if isinstance(value, type):
            return Foreign(f"dream_trainer.configs.{value.__name__}")
        if isinstance(value, Namespace):
            return Space(value)
        if isinstance(value, Partial):
            given = value.arguments
            spot: Any = None
            arguments = (self.lift(value.callee), *map(self.lift, given.positional))
            keywords = {key: self.lift(inner) for key, inner in given.keywords.items()}
            return Call(Foreign("functools.partial"), arguments, keywords, spot)
        if isinstance(value, (list, tuple)) and len(value) <= 1000:
            kind: Any = "list" if isinstance(value, list) else "tuple"
            return Display(kind, tuple(map(self.lift, value)))
        if isinstance(value, dict):
            keys = tuple(map(self.lift, value))
            return Display("dict", tuple(map(self.lift, value.values())), keys)
        if literal(value):
            return Constant(value)
        return Derived("object", ()) if isinstance(value, Record) else Unsure()

    def attribute_node(self, node: ast.Attribute, frame: Frame) -> Term:
        return self.attribute(self.term(node.value, frame), node.attr, frame, node)

    def attribute(self, of: Term, name: str, frame: Frame, node: ast.AST) -> Term:
        if isinstance(of, Path):
            return self.path_attribute(of, name, frame, node)
        if isinstance(of, Space):
            return self.lift(self.run.member(of.namespace, name))
        if isinstance(of, Foreign):
            return self.lift(self.run.external(f"{of.name}.{name}"))
        if isinstance(of, Code) and isinstance(of.definition, Class):
            found = find_member(of.definition, name)
            if found is not None:
                return self.lift(found[1])
        return Attribute(of, name)

    def path_attribute(self, of: Path, name: str, frame: Frame, node: ast.AST) -> Term:
        dotted = f"{of.dotted}.{name}"
        cls = self.instances.get(of.dotted)
        if dotted not in self.attributes and cls is not None:
            found = find_member(cls, name)
            member = found[1] if found is not None else None
            if isinstance(member, Function) and member.kind == "property":
                return self.follow_property(member, of, frame, node)
        return self.read(dotted)

    # Operators and displays.

    def display(self, node: Any, kind: Any, frame: Frame) -> Term:
        items: list[Term] = []
        is_open = False
        for element in node.elts:
            value = self.term(element, frame)
            if not isinstance(element, ast.Starred):
                items.append(value)
            elif isinstance(value, Display) and not value.is_open:
                items += value.items
            else:
                items.append(self.element(value))
                is_open = True
        return Display(kind, tuple(items), is_open=is_open)

    def mapping(self, node: ast.Dict, frame: Frame) -> Term:
        keys: list[Term] = []
        items: list[Term] = []
        spots: list[Spot] = []
        is_open = False
        for key, value_node in zip(node.keys, node.values, strict=True):
            name = None if key is None else self.term(key, frame)
            value = self.term(value_node, frame)
            if key is not None and name is not None:
                keys.append(name)
                spots.append(Written(frame.module, key))
                items.append(value)
            elif isinstance(value, Display) and not value.is_open and value.kind == "dict":
                keys += value.keys
                spots += value.spots
                items += value.items
            else:
                is_open = True
                keys.append(Unsure() if value.is_hidden else Derived("spread", ()))
                items.append(value)
        known = tuple(spots) if len(spots) == len(keys) else ()
        return Display("dict", tuple(items), tuple(keys), is_open, known)

    def derive(self, operator: ast.AST, nodes: list[ast.expr], frame: Frame) -> Term:
        return Derived(type(operator).__name__, tuple(self.term(node, frame) for node in nodes))

    def unary(self, node: ast.UnaryOp, frame: Frame) -> Term:
        value = self.term(node.operand, frame)
        if isinstance(value, Constant) and isinstance(node.op, ast.USub):
            return Constant(-value.value) if isinstance(value.value, (int, float)) else value
        if isinstance(value, Constant) and isinstance(node.op, ast.Not):
            return Constant(not value.value)
        return Derived(type(node.op).__name__, (value,))

    def boolean(self, node: ast.BoolOp, frame: Frame) -> Term:
        is_and = isinstance(node.op, ast.And)
        guards = frame.guards
        values: list[Term] = []
        for value in node.values:
            values.append(self.term(value, frame))
            spot = Written(frame.module, value)
            frame.guards += (Guard("if" if is_and else "else", values[-1], spot),)
        frame.guards = guards
        return Derived("And" if is_and else "Or", tuple(values))

    def comparison(self, node: ast.Compare, frame: Frame) -> Term:
        kind = type(node.ops[0]).__name__ if len(node.ops) == 1 else "Chain"
        return self.derived(kind, [node.left, *node.comparators], frame)

    def derived(self, kind: str, nodes: list[ast.expr], frame: Frame) -> Term:
        return Derived(kind, tuple(self.term(node, frame) for node in nodes))

    def conditional(self, node: ast.IfExp, frame: Frame) -> Term:
        test = self.term(node.test, frame)
        self.act("test", test, node.test, frame)
        guards, spot = frame.guards, Written(frame.module, node.test)
        frame.guards = (*guards, Guard("if", test, spot))
        then = self.term(node.body, frame)
        frame.guards = (*guards, Guard("else", test, spot))
        otherwise = self.term(node.orelse, frame)
        frame.guards = guards
        return either([then, otherwise])

    def formatted(self, node: ast.JoinedStr, frame: Frame) -> Term:
        return self.derived("format", node.values, frame)

    def format_value(self, node: ast.FormattedValue, frame: Frame) -> Term:
        value = self.term(node.value, frame)
        self.act("format", value, node.value, frame)
        return value

    def subscript(self, node: ast.Subscript, frame: Frame) -> Term:
        of, key = self.term(node.value, frame), self.term(node.slice, frame)
        if isinstance(of, (Foreign, Code)) and of.name != "os.environ":
            return of  # A generic class with its parameters.
        if isinstance(of, Path):
            text = isinstance(key, Constant) and isinstance(key.value, str)
            return self.read(f"{of.dotted}.{key.value if text else '*'}")  # type: ignore[attr-defined]
        if isinstance(of, Display) and isinstance(key, Constant) and not of.is_open:
            found = _picked(of, key.value)
            if found is not None:
                return found
        return Item(of, key)

    def comprehension(self, node: Any, frame: Frame) -> Term:
        inner = frame.inner()
        for source in node.generators:
            items = self.term(source.iter, inner)
            inner.guards += (Guard("loop", items, Written(frame.module, source.iter)),)
            self.bind(source.target, self.element(items), inner)
            for test in source.ifs:
                condition = self.term(test, inner)
                self.act("test", condition, test, inner)
                inner.guards += (Guard("if", condition, Written(frame.module, test)),)
        if isinstance(node, ast.DictComp):
            key, value = self.term(node.key, inner), self.term(node.value, inner)
            return Display("dict", (value,), (key,), is_open=True)
        return Display("list", (self.term(node.elt, inner),), is_open=True)

    def walrus(self, node: ast.NamedExpr, frame: Frame) -> Term:
        value = self.term(node.value, frame)
        frame.names[node.target.id] = value
        return value

    def yielded(self, node: ast.Yield | ast.YieldFrom, frame: Frame) -> Term:
        value = self.term(node.value, frame) if node.value is not None else Constant(None)
        self.act("yield", value, node, frame)
        frame.returns.append(value)
        frame.yields = True
        return Unsure()


def _picked(display: Display, key: object) -> Term | None:
    if display.kind == "dict":
        for name, item in zip(display.keys, display.items, strict=True):
            if isinstance(name, Constant) and name.value == key:
                return item
        return None
    if isinstance(key, int) and -len(display.items) <= key < len(display.items):
        return display.items[key]
    return None


def _bounds(node: ast.Slice) -> list[ast.expr]:
    return [bound for bound in (node.lower, node.upper, node.step) if bound is not None]
