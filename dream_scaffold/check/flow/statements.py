"""Statements: what binds names, what branches, what ends a function."""

import ast
from collections.abc import Callable
from typing import Any

from ..facts import Code, Constant, Derived, Display, Guard, Item, Path, Spot, Term, Unsure
from ..values.domain import Scope
from .calls import Calls
from .elements import either
from .frame import Frame, Local
from .objects import Objects
from .spots import Written


class Statements(Objects, Calls):
    """Walks through bodies."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.actions: dict[type[ast.stmt], Callable[[Any, Frame], None]] = {
            ast.Expr: lambda node, frame: void(self.term(node.value, frame)),
            ast.Assign: self.assign,
            ast.AnnAssign: self.annotated,
            ast.AugAssign: self.augmented,
            ast.Return: self.returned,
            ast.If: self.branch,
            ast.For: self.loop,
            ast.AsyncFor: self.loop,
            ast.While: self.while_loop,
            ast.With: self.context,
            ast.AsyncWith: self.context,
            ast.Try: self.attempt,
            ast.TryStar: self.attempt,
            ast.Match: self.match,
            ast.FunctionDef: self.define,
            ast.AsyncFunctionDef: self.define,
            ast.ClassDef: self.define_class,
            ast.Import: self.imported,
            ast.ImportFrom: self.imported,
            ast.Raise: self.raised,
            ast.Assert: self.asserted,
            ast.Delete: self.deleted,
            ast.Break: self.leave,
            ast.Continue: self.leave,
        }

    def run_body(self, body: list[ast.stmt], frame: Frame) -> None:
        for statement in body:
            if frame.is_over:
                return
            self.steps -= 1
            if self.steps < 0:
                self.is_cut = True
                return
            action = self.actions.get(type(statement))
            try:
                if action is not None:
                    action(statement, frame)
            except RecursionError:  # Nested too deeply to be followed.
                self.is_cut = True

    # Binding.

    def assign(self, node: ast.Assign, frame: Frame) -> None:
        value = self.term(node.value, frame)
        for target in node.targets:
            self.bind(target, value, frame)

    def annotated(self, node: ast.AnnAssign, frame: Frame) -> None:
        if node.value is not None:
            self.bind(node.target, self.term(node.value, frame), frame)

    def augmented(self, node: ast.AugAssign, frame: Frame) -> None:
        added = self.term(node.value, frame)
        current = self.term(node.target, frame)
        self.act("grow", added, node, frame, current)
        value = Derived(type(node.op).__name__, (current, added))
        if isinstance(node.target, ast.Name):
            frame.names[node.target.id] = value
        elif isinstance(current, Path) and not isinstance(node.target, ast.Subscript):
            self.attributes[current.dotted] = value

    def bind(self, target: ast.expr, value: Term, frame: Frame) -> None:
        if isinstance(target, ast.Name):
            frame.names[target.id] = value
        elif isinstance(target, ast.Attribute):
            owner = self.term(target.value, frame)
            if isinstance(owner, Path):
                self.set_path(f"{owner.dotted}.{target.attr}", value, frame, target)
            else:
                place = self.attribute(owner, target.attr, frame, target)
                self.act("set", value, target, frame, place)
        elif isinstance(target, ast.Subscript):
            owner, key = self.term(target.value, frame), self.term(target.slice, frame)
            self.act("set", value, target, frame, Item(owner, key))
            if isinstance(owner, Path):
                self.add_element(owner.dotted, key, value, frame, target)
            self.grow_display(target, owner, key, value, frame)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self.unpack(target.elts, value, frame)
        elif isinstance(target, ast.Starred):
            self.bind(target.value, value, frame)

    def grow_display(
        self, node: ast.Subscript, owner: Term, key: Term, value: Term, frame: Frame
    ) -> None:
        """`plan["head"] = style`: the dict has one entry more."""
        name = node.value
        if isinstance(owner, Display) and owner.kind == "dict" and isinstance(name, ast.Name):
            spots: tuple[Spot, ...] = ()
            if len(owner.spots) == len(owner.keys):
                spots = (*owner.spots, Written(frame.module, node.slice))
            items, keys = (*owner.items, value), (*owner.keys, key)
            frame.names[name.id] = Display("dict", items, keys, owner.is_open, spots)

    def unpack(self, targets: list[ast.expr], value: Term, frame: Frame) -> None:
        starred = any(isinstance(target, ast.Starred) for target in targets)
        items = value.items if isinstance(value, Display) and not value.is_open else ()
        if len(items) == len(targets) and not starred:
            for target, item in zip(targets, items, strict=True):
                self.bind(target, item, frame)
            return
        for index, target in enumerate(targets):
            parts = [Item(choice, Constant(index)) for choice in value.options()]
            picked = [
                choice.items[index]
                for choice in value.options()
                if isinstance(choice, Display) and len(choice.items) == len(targets)
            ]
            all_known = len(picked) == len(parts) and not starred
            self.bind(target, either(picked if all_known else list(parts)), frame)

    def define(self, node: ast.FunctionDef | ast.AsyncFunctionDef, frame: Frame) -> None:
        frame.names[node.name] = Code(node.name, "function", Local(node, frame))

    def define_class(self, node: ast.ClassDef, frame: Frame) -> None:
        frame.names[node.name] = Unsure()

    def imported(self, node: ast.Import | ast.ImportFrom, frame: Frame) -> None:
        scope = Scope(frame.module, frame.scope)
        if isinstance(node, ast.Import):
            self.run.import_modules(node, scope)
        else:
            self.run.import_names(node, scope)
        frame.names |= {name: self.lift(value) for name, value in scope.names.items()}

    def deleted(self, node: ast.Delete, frame: Frame) -> None:
        for target in node.targets:
            self.act("delete", self.term(target, frame), target, frame)

    # Flow.

    def returned(self, node: ast.Return, frame: Frame) -> None:
        value = Constant(None) if node.value is None else self.term(node.value, frame)
        self.act("return", value, node, frame)
        frame.returns.append(value)
        frame.is_over = True

    def raised(self, node: ast.Raise, frame: Frame) -> None:
        value = Constant(None) if node.exc is None else self.term(node.exc, frame)
        self.act("raise", value, node, frame)
        frame.is_over = True

    def leave(self, node: ast.Break | ast.Continue, frame: Frame) -> None:
        if isinstance(node, ast.Break):
            self.act("leave", Constant(None), node, frame)
        frame.is_over = True

    def asserted(self, node: ast.Assert, frame: Frame) -> None:
        self.act("test", self.term(node.test, frame), node.test, frame)

    def branch(self, node: ast.If, frame: Frame) -> None:
        test = self.term(node.test, frame)
        self.act("test", test, node.test, frame)
        if isinstance(test, Constant):
            self.run_body(node.body if test.value else node.orelse, frame)
            return
        spot = Written(frame.module, node.test)
        before = frame.guards
        bodies = ((Guard("if", test, spot), node.body), (Guard("else", test, spot), node.orelse))
        over = self.alternatives(bodies, frame)
        if over == [True, False]:
            frame.guards = (*before, Guard("after", test, spot))
        elif over == [False, True]:
            frame.guards = (*before, Guard("if", test, spot))

    def alternatives(
        self, bodies: "tuple[tuple[Guard, list[ast.stmt]], ...]", frame: Frame
    ) -> list[bool]:
        """Walk through bodies of which one is run; whether each of them ends the function."""
        before, guards = dict(frame.names), frame.guards
        ended: list[dict[str, Term]] = []
        over: list[bool] = []
        for guard, body in bodies:
            frame.names, frame.guards = dict(before), (*guards, guard)
            frame.is_over = False
            self.run_body(body, frame)
            over.append(frame.is_over)
            if not frame.is_over:
                ended.append(frame.names)
        frame.is_over = all(over)
        frame.names, frame.guards = _joined(ended) if ended else before, guards
        return over

    def loop(self, node: ast.For | ast.AsyncFor, frame: Frame) -> None:
        items = self.term(node.iter, frame)
        spot = Written(frame.module, node.iter)
        self.turn(Guard("loop", items, spot), node.body, frame, node.target, self.element(items))
        self.run_body(node.orelse, frame)

    def while_loop(self, node: ast.While, frame: Frame) -> None:
        test = self.term(node.test, frame)
        self.act("test", test, node.test, frame)
        self.turn(Guard("loop", test, Written(frame.module, node.test)), node.body, frame)
        self.run_body(node.orelse, frame)

    def turn(
        self,
        guard: Guard,
        body: list[ast.stmt],
        frame: Frame,
        target: ast.expr | None = None,
        element: Term | None = None,
    ) -> None:
        """One turn of a loop stands for all of them."""
        before, guards = dict(frame.names), frame.guards
        frame.guards = (*guards, guard)
        if target is not None and element is not None:
            self.bind(target, element, frame)
        self.run_body(body, frame)
        frame.is_over = False
        frame.names = _joined([before, frame.names])
        frame.guards = guards

    def context(self, node: ast.With | ast.AsyncWith, frame: Frame) -> None:
        guards = frame.guards
        for item in node.items:
            value = self.term(item.context_expr, frame)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, value, frame)
            guard = Guard("with", value, Written(frame.module, item.context_expr))
            frame.guards = (*frame.guards, guard)
        self.run_body(node.body, frame)
        frame.guards = guards

    def attempt(self, node: ast.Try | ast.TryStar, frame: Frame) -> None:
        caught: Term = Display(
            "tuple",
            tuple(
                self.term(handler.type, frame) if handler.type else Constant(None)
                for handler in node.handlers
            ),
        )
        spot = Written(frame.module, node)
        bodies = [(Guard("try", caught, spot), [*node.body, *node.orelse])]
        for handler in node.handlers:
            test = self.term(handler.type, frame) if handler.type else Constant(None)
            bodies.append((Guard("except", test, Written(frame.module, handler)), handler.body))
            if handler.name is not None:
                frame.names[handler.name] = Unsure()
        self.alternatives(tuple(bodies), frame)
        is_over, frame.is_over = frame.is_over, False
        self.run_body(node.finalbody, frame)
        frame.is_over |= is_over

    def match(self, node: ast.Match, frame: Frame) -> None:
        subject = self.term(node.subject, frame)
        bodies = []
        for case in node.cases:
            for inner in ast.walk(case.pattern):
                if isinstance(inner, (ast.MatchAs, ast.MatchStar)) and inner.name is not None:
                    frame.names[inner.name] = Item(subject)
            spot = Written(frame.module, case.pattern)
            bodies.append((Guard("if", Derived("match", (subject,)), spot), case.body))
        self.alternatives(tuple(bodies), frame)
        frame.is_over = False


def void(_: Term) -> None:
    """An expression that stands alone."""


def _joined(ways: list[dict[str, Term]]) -> dict[str, Term]:
    """The names after several ways to get there."""
    if len(ways) == 1:
        return ways[0]
    names: dict[str, Term] = {}
    for way in ways:
        for name in way:
            if name not in names:
                names[name] = either([other[name] for other in ways if name in other])
    return names
