"""Statements: assignments, branches, loops, definitions and imports."""

import ast
from collections.abc import Callable
from typing import Any

from ..source import Module
from .calls import Calls, Raised
from .classes import is_config
from .domain import (
    Arguments,
    Bound,
    Class,
    External,
    Function,
    Namespace,
    Origin,
    Record,
    Scope,
    Site,
    Unknown,
    Value,
    truth,
)
from .operators import iterate, operate, undecided

LONGEST_LOOP = 1000

TRANSPARENT = ("torch", "dream_trainer", "typing", "typing_extensions", "functools", "abc")
"""Foreign packages whose decorators leave a function callable as it was."""


class Returned(Exception):
    """A function returns."""

    def __init__(self, value: Value) -> None:
        self.value = value


class LeftLoop(Exception):
    """A loop ends by `break`."""


class NextTurn(Exception):
    """A loop goes on by `continue`."""


class Interpreter(Calls):
    """Runs the top level of modules, and functions of the project, on abstract values.

    One interpreter is one path through the program: see `explore`.
    """

    def prepare(self) -> None:
        super().prepare()
        self.scopes: dict[str, Scope] = {}
        self.classes: list[Class] = []
        self.imports: dict[str, list[Module]] = {}
        """Path of a module -> the project's modules that it imports."""

        self.actions: dict[type[ast.stmt], Callable[[Any, Scope], None]] = {
            ast.Expr: lambda node, scope: self.evaluate(node.value, scope) and None,
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
            ast.Global: self.declare_global,
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
            except (Raised, Returned, LeftLoop, NextTurn):
                continue
        return scope

    def namespace(self, module: Module) -> Namespace:
        return Namespace(module, self.module_scope(module))

    def run_function(self, function: Function, scope: Scope) -> Value:
        if isinstance(function.node, ast.Lambda):
            return self.evaluate(function.node.body, scope)
        try:
            self.run(function.node.body, scope)
        except Returned as result:
            return result.value
        except (LeftLoop, NextTurn):
            pass
        return None

    def run(self, body: list[ast.stmt], scope: Scope) -> None:
        for statement in body:
            self.execute(statement, scope)

    def execute(self, node: ast.stmt, scope: Scope) -> None:
        self.steps -= 1
        action = self.actions.get(type(node))
        if action is not None:
            action(node, scope)

    # Assignments.

    def assign(self, node: ast.Assign, scope: Scope) -> None:
        value = self.evaluate(node.value, scope)
        for target in node.targets:
            self.bind_target(target, value, scope)

    def annotated(self, node: ast.AnnAssign, scope: Scope) -> None:
        if node.value is not None:
            self.bind_target(node.target, self.evaluate(node.value, scope), scope)

    def augmented(self, node: ast.AugAssign, scope: Scope) -> None:
        if not isinstance(node.target, (ast.Name, ast.Attribute)):
            return
        current = self.evaluate(node.target, scope)
        value = operate(node.op, current, self.evaluate(node.value, scope), node, scope)
        self.bind_target(node.target, value, scope)

    def bind_target(self, target: ast.expr, value: Value, scope: Scope) -> None:
        site = Site(scope.module, target)
        if isinstance(target, ast.Name):
            scope.names[target.id] = value
            if isinstance(value, Record) and value.label is None and is_config(value.cls):
                value.label = (target.id, site)
        elif isinstance(target, ast.Attribute):
            owner = self.evaluate(target.value, scope)
            self.assign_attribute(owner, target.attr, value, site)
        elif isinstance(target, ast.Subscript):
            owner, key = self.evaluate(target.value, scope), self.evaluate(target.slice, scope)
            if isinstance(owner, dict) and isinstance(key, (str, int)):
                owner[key] = value
        elif isinstance(target, ast.Starred):
            self.bind_target(target.value, Unknown(site=site), scope)
        elif isinstance(target, (ast.Tuple, ast.List)):
            items = iterate(value)
            fits = items is not None and len(items) == len(target.elts)
            for index, element in enumerate(target.elts):
                part = items[index] if items is not None and fits else Unknown(site=site)
                self.bind_target(element, part, scope)

    def assign_attribute(self, target: Value, name: Value, value: Value, site: Site) -> None:
        if isinstance(target, Record):
            if isinstance(name, str):
                target.fields[name] = value
                target.origins[name] = Origin(site, explicit=True)
            else:
                target.forget(Unknown("may be changed here", site))
        elif isinstance(target, Class):
            if isinstance(name, str):
                target.members[name] = value
            else:
                target.opened = "a member of it is set by a name that is not decidable"
        elif isinstance(target, Namespace) and isinstance(name, str):
            target.scope.names[name] = value

    def declare_global(self, node: ast.Global, scope: Scope) -> None:
        # What a function does to globals is rare in configurations: no longer decidable.
        for name in node.names:
            scope.top.names[name] = undecided(node, scope)

    # Flow.

    def returned(self, node: ast.Return, scope: Scope) -> None:
        raise Returned(None if node.value is None else self.evaluate(node.value, scope))

    def raised(self, node: ast.Raise, scope: Scope) -> None:
        raise Raised

    def leave(self, node: ast.Break | ast.Continue, scope: Scope) -> None:
        raise LeftLoop if isinstance(node, ast.Break) else NextTurn

    def branch(self, node: ast.If, scope: Scope) -> None:
        test = self.evaluate(node.test, scope)
        known = truth(test)
        if isinstance(node.test, (ast.Name, ast.Attribute)) and known is True and _typing(node):
            # Names that only annotations use are wanted, and so is what stands in for them.
            self.run(node.body, scope)
            self.run(node.orelse, scope)
        elif known is not None:
            self.run(node.body if known else node.orelse, scope)
        elif not node.orelse and all(map(_ends_or_idles, node.body)):
            return  # Either nothing happens, or there is no configuration at all.
        else:
            self.run(node.body if self.choose() else node.orelse, scope)

    def loop(self, node: ast.For | ast.AsyncFor, scope: Scope) -> None:
        items = iterate(self.evaluate(node.iter, scope))
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

    def context(self, node: ast.With | ast.AsyncWith, scope: Scope) -> None:
        for item in node.items:
            value = self.evaluate(item.context_expr, scope)
            if item.optional_vars is not None:
                self.bind_target(item.optional_vars, value, scope)
        self.run(node.body, scope)

    def attempt(self, node: ast.Try | ast.TryStar, scope: Scope) -> None:
        try:
            self.run(node.body, scope)
            self.run(node.orelse, scope)
            if any(map(self.is_local_fallback, node.handlers)):
                self.fall_back(node, scope)
        except Raised:
            if not node.handlers:
                self.run(node.finalbody, scope)
                raise
            self.run(node.handlers[0].body, scope)
        self.run(node.finalbody, scope)

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

    def fits(self, pattern: ast.pattern, subject: Value, scope: Scope) -> bool | None:
        if isinstance(pattern, ast.MatchAs) and pattern.pattern is None:
            if pattern.name is not None:
                scope.names[pattern.name] = subject
            return True
        if isinstance(pattern, ast.MatchOr):
            results = [self.fits(item, subject, scope) for item in pattern.patterns]
            return True if True in results else None if None in results else False
        if isinstance(pattern, ast.MatchValue):
            value = self.evaluate(pattern.value, scope)
            return truth(operate(ast.Eq(), subject, value, pattern, scope))
        return None

    # Imports.

    def import_modules(self, node: ast.Import, scope: Scope) -> None:
        for alias in node.names:
            first = alias.name.partition(".")[0]
            found = self.sources.resolve(alias.name, scope.module)
            value = self.imported(found, scope)
            if alias.asname is None and first != alias.name:
                value = self.imported(self.sources.resolve(first, scope.module), scope)
            scope.names[alias.asname or first] = value

    def import_names(self, node: ast.ImportFrom, scope: Scope) -> None:
        found = self.sources.resolve(node.module or "", scope.module, node.level)
        module = self.imported(found, scope)
        for alias in node.names:
            if alias.name == "*":
                self.import_all(module, scope)
            elif isinstance(module, Namespace):
                value = self.member(module, alias.name)
                if isinstance(value, Namespace):
                    self.note_import(value.module, scope)
                scope.names[alias.asname or alias.name] = value
            elif isinstance(module, External):
                value = self.external(f"{module.name}.{alias.name}")
                scope.names[alias.asname or alias.name] = value

    def imported(self, found: Module | str, scope: Scope) -> Value:
        if isinstance(found, str):
            return External(found)
        self.note_import(found, scope)
        return self.namespace(found)

    def note_import(self, module: Module, scope: Scope) -> None:
        modules = self.imports.setdefault(scope.module.path, [])
        if module not in modules:
            modules.append(module)

    def import_all(self, module: Value, scope: Scope) -> None:
        if isinstance(module, External):
            scope.stars.append(module.name)
        elif isinstance(module, Namespace):
            exported = module.scope.names.get("__all__")
            names = (
                exported
                if isinstance(exported, (list, tuple))
                else [name for name in module.scope.names if not name.startswith("_")]
            )
            scope.stars += module.scope.stars
            for name in names:
                if isinstance(name, str):
                    scope.names[name] = self.member(module, name)

    # Definitions.

    def define(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
        function = Function(node, scope.enclosing, self.defaults(node.args, scope))
        value: Value = function
        for decorator in reversed(node.decorator_list):
            value = self.decorate(decorator, value, scope)
        scope.names[node.name] = value

    def decorate(self, node: ast.expr, value: Value, scope: Scope) -> Value:
        callee = node.func if isinstance(node, ast.Call) else node
        decorator = self.evaluate(callee, scope)
        function = value.function if isinstance(value, Bound) else value
        if isinstance(decorator, External) and isinstance(function, Function):
            kind = decorator.last
            if decorator.name.startswith("builtins.") or kind == "cached_property":
                function.kind = "property" if kind == "cached_property" else kind
            elif kind == "abstractmethod":
                function.abstract = True
            elif decorator.name.split(".")[0] not in TRANSPARENT:
                function.opaque = True
            return value
        if isinstance(value, Function) and isinstance(node, ast.Attribute):
            if node.attr in ("setter", "deleter"):
                return scope.names.get(value.name, value)
        if isinstance(decorator, Unknown):
            if isinstance(function, Function):
                function.opaque = True
            return value
        site = Site(scope.module, node)
        applied = self.evaluate(node, scope)
        result = self.call(applied, Arguments([value], {}, {}), site)
        if isinstance(result, (Function, Bound, Class)):
            return result
        if isinstance(function, Function):
            function.opaque = True
        elif isinstance(value, Class):
            value.opened = f"@{ast.unparse(node)} may change it"
        return value

    def define_class(self, node: ast.ClassDef, scope: Scope) -> None:
        bases = [self.evaluate(base, scope) for base in node.bases]
        body = Scope(scope.module, scope)
        body.is_class = True
        cls = Class(node, bases, body)
        self.classes.append(cls)
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                cls.annotations[statement.target.id] = statement.annotation
            self.execute(statement, body)
        for member in cls.members.values():
            if isinstance(member, Function) and member.owner is None:
                member.owner = cls
        value: Value = cls
        for decorator in reversed(node.decorator_list):
            value = self.decorate_class(decorator, value, scope)
        scope.names[node.name] = value

    def decorate_class(self, node: ast.expr, value: Value, scope: Scope) -> Value:
        callee = self.evaluate(node.func if isinstance(node, ast.Call) else node, scope)
        if isinstance(value, Class) and isinstance(callee, External):
            if callee.last == "dataclass":
                value.is_dataclass = True
                for keyword in node.keywords if isinstance(node, ast.Call) else []:
                    value.kw_only |= keyword.arg == "kw_only"
            elif callee.name.split(".")[0] not in TRANSPARENT:
                value.opened = f"@{callee.name} may change it"
            return value
        return self.decorate(node, value, scope)


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
