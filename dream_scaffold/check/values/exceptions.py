"""What raises and what catches it: `try`, `with`, `raise`, `assert`."""

import ast
import builtins
from collections.abc import Callable

from .classes import linearize
from .domain import (
    Arguments,
    Bound,
    Class,
    External,
    Function,
    Record,
    Scope,
    Site,
    Unknown,
    Value,
)
from .literals import truth
from .patterns import Patterns
from .signals import LeftLoop, NextTurn, Raised, Returned, Signal
from .streams import Stream


def catches(wanted: Value, error: Value) -> bool | None:
    """Whether `except wanted` catches an error; None where that is not decidable."""
    if isinstance(wanted, tuple):
        known = [catches(item, error) for item in wanted]
        return True if True in known else None if None in known else False
    if isinstance(wanted, External) and wanted.name == "builtins.BaseException":
        return True
    bases = linearize(error) if isinstance(error, Class) else [error]
    if any(base is wanted for base in bases):
        return True
    found = [real for base in bases if (real := _builtin(base)) is not None]
    sought = _builtin(wanted)
    if sought is not None and found:
        return any(issubclass(real, sought) for real in found)
    is_open = sought is None and not isinstance(wanted, Class)
    return None if is_open or not found else False


def _builtin(value: Value) -> type[BaseException] | None:
    """The exception class of Python, or of the runtime, that a value is."""
    found: object = value
    if isinstance(value, External):
        found = getattr(builtins, value.last, None) if value.within("builtins") else None
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


class Exceptions(Patterns):
    """Carries out the statements that raise, catch, and enter contexts."""

    def run(self, body: list[ast.stmt], scope: Scope) -> None:
        raise NotImplementedError

    def raised(self, node: ast.Raise, scope: Scope) -> None:
        if node.exc is None:
            raise Raised(scope.top.names.get("<handled>"))
        called = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        raise Raised(self.evaluate(called, scope))

    def asserted(self, node: ast.Assert, scope: Scope) -> None:
        if truth(self.evaluate(node.test, scope)) is False:
            raise Raised(External("builtins.AssertionError"))

    def attempt(self, node: ast.Try | ast.TryStar, scope: Scope) -> None:
        try:
            self.attempt_body(node, scope)
        except Signal:
            self.run(node.finalbody, scope)
            raise
        self.run(node.finalbody, scope)

    def attempt_body(self, node: ast.Try | ast.TryStar, scope: Scope) -> None:
        local = any(map(self.is_local_fallback, node.handlers))

        def catching(error: Value) -> bool:
            types = [handler.type for handler in node.handlers]
            return None in types or any(
                catches(self.evaluate(kind, scope), error) is True for kind in types if kind
            )

        self.tries.append(catching)
        try:
            error = self.guarded(lambda: self.run(node.body, scope), node, not local)
        finally:
            self.tries.pop()
        if error is None:
            self.run(node.orelse, scope)
            if local:
                self.fall_back(node, scope)
            return
        for handler in node.handlers:
            wanted = None if handler.type is None else self.evaluate(handler.type, scope)
            if handler.type is None or self.caught(wanted, error):
                if handler.name is not None:
                    scope.names[handler.name] = Unknown(site=Site(scope.module, handler))
                scope.top.names["<handled>"] = error.error
                self.run(handler.body, scope)
                return
        raise error

    def guarded(self, body: Callable[[], None], node: ast.stmt, may_raise: bool) -> Raised | None:
        """Run what somebody may catch the errors of."""
        guards = list(self.guards)
        if not isinstance(node, (ast.Try, ast.TryStar)) or node.handlers:
            self.guards.append(may_raise)
        try:
            body()
        except Raised as error:
            return error
        finally:
            self.guards[:] = guards
        return None

    def caught(self, wanted: Value, raised: Raised) -> bool:
        known = catches(wanted, raised.error)
        return self.choose() if known is None else known

    def is_local_fallback(self, handler: ast.ExceptHandler) -> bool:
        return any(isinstance(inner, (ast.Import, ast.ImportFrom)) for inner in handler.body)

    def fall_back(self, node: ast.Try | ast.TryStar, scope: Scope) -> None:
        """Take from the handlers what the body could not import from the project."""
        before = dict(scope.names)
        for handler in node.handlers:
            self.run(handler.body, scope)
        for name, value in before.items():
            if not isinstance(value, (External, Unknown)):
                scope.names[name] = value

    # Contexts.

    def context(self, node: ast.With | ast.AsyncWith, scope: Scope, index: int = 0) -> None:
        if index == len(node.items):
            self.run(node.body, scope)
            return
        item = node.items[index]
        value = self.evaluate(item.context_expr, scope)

        def inside(entered: Value) -> None:
            if item.optional_vars is not None:
                self.bind_target(item.optional_vars, entered, scope)
            self.context(node, scope, index + 1)

        if isinstance(value, Stream) and value.manager is not None:
            self.through(*value.manager, inside)
        elif isinstance(value, External) and value.name == "contextlib.suppress()":
            given = item.context_expr.args if isinstance(item.context_expr, ast.Call) else []
            wanted = tuple(self.evaluate(each, scope) for each in given)
            self.tries.append(lambda error: catches(wanted, error) is True)
            try:
                raised = self.guarded(lambda: inside(None), node, may_raise=True)
            finally:
                self.tries.pop()
            if raised is not None and not self.caught(wanted, raised):
                raise raised
        elif isinstance(value, Record) and isinstance(value.cls, Class):
            self.enter(value, inside, Site(scope.module, item.context_expr))
        else:
            inside(value)

    def through(self, function: Function, scope: Scope, inside: Callable[[Value], None]) -> None:
        """Run a generator that is a context manager, and the body of `with` where it yields."""
        left: list[Signal] = []

        def receive(value: Value) -> None:
            try:
                inside(value)
            except (Returned, LeftLoop, NextTurn) as signal:
                left.append(signal)

        self.receivers[scope] = receive
        try:
            self.run(function.node.body, scope)  # type: ignore[arg-type]
        except Returned:
            pass
        finally:
            del self.receivers[scope]
        if left:
            raise left[0]

    def enter(self, record: Record, inside: Callable[[Value], None], site: Site) -> None:
        """A context manager that the project has written as a class."""
        enter = self.attribute(record, "__enter__", site)
        leave = self.attribute(record, "__exit__", site)
        if not isinstance(enter, Bound) or not isinstance(leave, Bound):
            inside(Unknown(site=site))
            return
        entered = self.call(enter, Arguments([], {}, {}), site)
        nobody = Arguments([None, None, None], {}, {})
        try:
            inside(entered)
        except Raised as raised:
            why = Unknown("is an exception", site)
            swallows = truth(self.call(leave, Arguments([raised.error, why, why], {}, {}), site))
            if self.choose() if swallows is None else swallows:
                return
            raise
        except Signal:
            self.call(leave, nobody, site)
            raise
        self.call(leave, nobody, site)
