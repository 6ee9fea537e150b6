"""Statements: assignments, branches, loops, and running modules and functions."""

import ast
from collections.abc import Callable
from typing import Any

from ..source import Module
from .domain import (
    External,
    Function,
    Scope,
    Unknown,
    Value,
)
from .exceptions import Exceptions
from .foreign import FOREIGN
from .literals import is_open, spoil, truth
from .methods import CHANGES
from .operators import undecided
from .signals import LeftLoop, NextTurn, Raised, Returned, Signal
from .streams import Stream, is_generator, iterate

LONGEST_LOOP = 1000


class Interpreter(Exceptions):
    """Runs the top level of modules, and functions of the project, on abstract values.

    One interpreter is one path through the program: see `explore`.
    """

    def prepare(self) -> None:
        super().prepare()
        self.actions: dict[type[ast.stmt], Callable[[Any, Scope], None]] = {
            ast.Expr: self.expression,
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
            ast.Import: self.import_modules,
            ast.ImportFrom: self.import_names,
            ast.Raise: self.raised,
            ast.Break: self.leave,
            ast.Continue: self.leave,
            ast.Global: self.declare,
            ast.Nonlocal: self.declare,
            ast.Delete: self.delete,
            ast.Assert: self.asserted,
        }

    # Modules and functions.

    def module_scope(self, module: Module, name: str | None = None) -> Scope:
        """The names of a module, run on first use. In an import cycle, those known so far."""
        if module.path in self.scopes:
            return self.scopes[module.path]
        scope = Scope(module)
        scope.names["__name__"] = name or module.name
        self.scopes[module.path] = scope
        for statement in module.tree.body:
            try:
                self.execute(statement, scope)
            except Signal:
                continue
        return scope

    def run_function(self, function: Function, scope: Scope) -> Value:
        if isinstance(function.node, ast.Lambda):
            return self.evaluate(function.node.body, scope)
        if "yield" in function.site.module.text and is_generator(function.node):
            return self.generate(function, scope)
        try:
            self.run(function.node.body, scope)
        except Returned as result:
            return result.value
        except (LeftLoop, NextTurn):
            pass
        return None

    def generate(self, function: Function, scope: Scope) -> Stream:
        """A generator: its body is run when its items are asked for."""

        def make() -> list[Value] | None:
            found: list[Value] = []

            def receive(value: Value) -> None:
                if len(found) >= LONGEST_LOOP:
                    raise Raised(None)
                found.append(value)

            self.receivers[scope] = receive
            try:
                self.run(function.node.body, scope)  # type: ignore[arg-type]
            except Returned:
                pass
            finally:
                del self.receivers[scope]
            return None if is_open(found) or len(found) >= LONGEST_LOOP else found

        stream = Stream(make)
        if function.node in self.managers:
            stream.manager = (function, scope)
        return stream

    def run(self, body: list[ast.stmt], scope: Scope) -> None:
        for statement in body:
            self.execute(statement, scope)

    def execute(self, node: ast.stmt, scope: Scope) -> None:
        self.steps -= 1
        action = self.actions.get(type(node))
        if action is not None:
            action(node, scope)

    def expression(self, node: ast.Expr, scope: Scope) -> None:
        self.evaluate(node.value, scope)

    # Flow.

    def returned(self, node: ast.Return, scope: Scope) -> None:
        raise Returned(None if node.value is None else self.evaluate(node.value, scope))

    def leave(self, node: ast.Break | ast.Continue, scope: Scope) -> None:
        raise LeftLoop if isinstance(node, ast.Break) else NextTurn

    def branch(self, node: ast.If, scope: Scope) -> None:
        test = self.evaluate(node.test, scope)
        known = truth(test)
        if isinstance(node.test, (ast.Name, ast.Attribute)) and known is True and _typing(node):
            # Names that only annotations use are wanted; what stands in for them counts.
            before = dict(scope.names)
            self.run(node.body, scope)
            scope.names.update(before)
            self.run(node.orelse, scope)
        elif known is not None:
            self.run(node.body if known else node.orelse, scope)
        elif not node.orelse and all(map(_ends_or_idles, node.body)):
            return  # Either nothing happens, or there is no configuration at all.
        elif not node.orelse and all(self.only_tells(inner, scope) for inner in node.body):
            self.run(node.body, scope)
        else:
            self.run(node.body if self.choose() else node.orelse, scope)

    def only_tells(self, statement: ast.stmt, scope: Scope) -> bool:
        """Whether a statement hands values to foreign code and does nothing else.

        It may be run, then, even where it is not known whether it would be: what foreign code
        is given is undecided afterwards, either way.
        """
        if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
            return False
        callee = self.evaluate(statement.value.func, scope)
        if isinstance(callee, External):
            return callee.name not in FOREIGN and not callee.within("dream_trainer")
        return isinstance(callee, Unknown)

    def loop(self, node: ast.For | ast.AsyncFor, scope: Scope) -> None:
        value = self.evaluate(node.iter, scope)
        items = list(value) if isinstance(value, set) and not is_open(value) else iterate(value)
        if items is None or len(items) > LONGEST_LOOP:
            self.blur(node, node.target, scope)
            return
        for item in items:
            self.bind_target(node.target, item, scope)
            try:
                self.run(node.body, scope)
            except NextTurn:
                continue
            except LeftLoop:
                return
        self.run(node.orelse, scope)

    def while_loop(self, node: ast.While, scope: Scope) -> None:
        for _ in range(LONGEST_LOOP):
            known = truth(self.evaluate(node.test, scope))
            if known is None:
                break
            if not known:
                self.run(node.orelse, scope)
                return
            try:
                self.run(node.body, scope)
            except NextTurn:
                continue
            except LeftLoop:
                return
        self.blur(node, None, scope)

    def blur(
        self, node: ast.For | ast.AsyncFor | ast.While, target: ast.expr | None, scope: Scope
    ) -> None:
        """A loop of unknown length: run it once or not at all, then forget what it sets."""
        if target is not None:
            self.bind_target(target, undecided(node, scope, "is of unknown length"), scope)
        if self.choose():
            try:
                self.run(node.body, scope)
            except (NextTurn, LeftLoop):
                pass
        for inner in ast.walk(node):
            targets = inner.targets if isinstance(inner, ast.Assign) else []
            if isinstance(inner, (ast.AugAssign, ast.AnnAssign)):
                targets = [inner.target]
            for changed in targets:
                self.bind_target(changed, undecided(node, scope), scope)
            called = inner.func if isinstance(inner, ast.Call) else None
            if isinstance(called, ast.Attribute) and called.attr in CHANGES:
                spoil(self.evaluate(called.value, scope), undecided(node, scope))

    def match(self, node: ast.Match, scope: Scope) -> None:
        subject = self.evaluate(node.subject, scope)
        for case in node.cases:
            taken = self.fits(case.pattern, subject, scope)
            if taken and case.guard is not None:
                taken = truth(self.evaluate(case.guard, scope))
            if taken is None:
                last = case is node.cases[-1]
                taken = self.choose() if not last else True
            if taken:
                self.run(case.body, scope)
                return


def _typing(node: ast.If) -> bool:
    test = node.test
    name = test.attr if isinstance(test, ast.Attribute) else ""
    return (test.id if isinstance(test, ast.Name) else name) == "TYPE_CHECKING"


def _ends_or_idles(statement: ast.stmt) -> bool:
    """Whether a statement can change no value that outlives it."""
    if isinstance(statement, (ast.Raise, ast.Pass)):
        return True
    if not isinstance(statement, ast.Expr):
        return False
    value = statement.value
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return value.func.id == "print"
    return isinstance(value, ast.Constant)
