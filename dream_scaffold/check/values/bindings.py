"""What binds names: assignments, functions, classes, decorators, imports."""

import ast
import sys

from ..source import Module
from .classes import intercepts, is_config, linearize
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
    shorten,
)
from .enumerations import is_enumeration, make_members
from .items import Items
from .streams import is_named_tuple, iterate

MANAGERS = ("contextlib.contextmanager", "contextlib.asynccontextmanager")
"""Decorators that make a context manager of a generator."""

TRANSPARENT = ("torch", "dream_trainer", "typing", "typing_extensions", "functools", "abc")
"""Foreign packages whose decorators leave a function callable as it was."""


CLOSED_METACLASSES = ("abc.ABCMeta", "enum.EnumMeta", "enum.EnumType", "builtins.type")


class Bindings(Items):
    """Carries out the statements that bind values to names and attributes."""

    def prepare(self) -> None:
        super().prepare()
        self.scopes: dict[str, Scope] = {}
        self.classes: list[Class] = []
        self.managers: set[ast.AST] = set()
        """Generators that are context managers."""

        self.declared: dict[Scope, dict[str, Scope]] = {}
        """Scope -> its names that are global or nonlocal, and where they are."""

        self.imports: dict[str, list[Module]] = {}
        """Path of a module -> the project's modules that it imports."""

    def execute(self, node: ast.stmt, scope: Scope) -> None:
        raise NotImplementedError

    def module_scope(self, module: Module, name: str | None = None) -> Scope:
        raise NotImplementedError

    def namespace(self, module: Module) -> Namespace:
        return Namespace(module, self.module_scope(module))

    # Assignments.

    def assign(self, node: ast.Assign, scope: Scope) -> None:
        value = self.evaluate(node.value, scope)
        for target in node.targets:
            self.bind_target(target, value, scope)

    def annotated(self, node: ast.AnnAssign, scope: Scope) -> None:
        if node.value is not None:
            self.bind_target(node.target, self.evaluate(node.value, scope), scope)

    def bind_target(self, target: ast.expr, value: Value, scope: Scope) -> None:
        site = Site(scope.module, target)
        if isinstance(target, ast.Name):
            where = self.declared.get(scope, {}).get(target.id, scope)
            if where is not scope and self.wild:
                value = Unknown("is set in a call that may not happen", site)
            where.names[target.id] = value
            if isinstance(value, Record) and value.label is None and is_config(value.cls):
                value.label = (target.id, site)
        elif isinstance(target, ast.Attribute):
            owner = self.evaluate(target.value, scope)
            self.assign_attribute(owner, target.attr, value, site)
        elif isinstance(target, ast.Subscript):
            self.assign_item(target, value, scope)
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = spread(value, target.elts)
            why = value if isinstance(value, Unknown) else Unknown(site=site)
            for index, element in enumerate(target.elts):
                part = why if parts is None else parts[index]
                is_rest = isinstance(element, ast.Starred)
                self.bind_target(element.value if is_rest else element, part, scope)  # type: ignore[attr-defined]

    def declare(self, node: ast.Global | ast.Nonlocal, scope: Scope) -> None:
        for name in node.names:
            owner = scope.top
            if isinstance(node, ast.Nonlocal) and scope.outer is not None:
                owner = scope.outer.lookup(name) or owner
            self.declared.setdefault(scope, {})[name] = owner

    def assign_attribute(self, target: Value, name: Value, value: Value, site: Site) -> None:
        if isinstance(target, Record):
            if isinstance(name, str) and not intercepts(target.cls, name):
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
            if found.split(".")[0] not in (*sys.stdlib_module_names, "torch", "dream_trainer"):
                self.may_raise()  # It may not be installed.
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
            if decorator.name in MANAGERS:
                self.managers.add(function.node)
            elif decorator.name.startswith("builtins.") or kind == "cached_property":
                function.kind = "property" if kind == "cached_property" else kind
            elif kind == "abstractmethod":
                function.abstract = True
            elif decorator.name.split(".")[0] not in TRANSPARENT:
                function.opaque = True
            return value
        is_accessor = isinstance(node, ast.Attribute) and node.attr in ("setter", "deleter")
        if isinstance(value, Function) and is_accessor:
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
            value.opened = f"@{shorten(node)} may change it"
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
        if is_named_tuple(cls):
            cls.is_dataclass = True
        if is_enumeration(cls):
            make_members(cls)
        self.derive(cls, node, scope)
        value: Value = cls
        for decorator in reversed(node.decorator_list):
            value = self.decorate_class(decorator, value, scope)
        scope.names[node.name] = value

    def derive(self, cls: Class, node: ast.ClassDef, scope: Scope) -> None:
        """What a metaclass and the `__init_subclass__` of a base make of a new class."""
        options = {word.arg: self.evaluate(word.value, scope) for word in node.keywords}
        metaclass = options.pop("metaclass", None)
        if isinstance(metaclass, External):
            known = metaclass.name in CLOSED_METACLASSES
            cls.opened = None if known else f"its metaclass {metaclass.last} may change it"
        elif metaclass is not None:
            cls.opened = "its metaclass may change it"
        for base in linearize(cls)[1:]:
            found = base.members.get("__init_subclass__") if isinstance(base, Class) else None
            if isinstance(found, Function):
                named = {name: value for name, value in options.items() if name is not None}
                site = Site(scope.module, node)
                self.call(Bound(found, cls), Arguments([], named, {}), site)
                break

    def decorate_class(self, node: ast.expr, value: Value, scope: Scope) -> Value:
        callee = self.evaluate(node.func if isinstance(node, ast.Call) else node, scope)
        if isinstance(value, Class) and isinstance(callee, External):
            if callee.last == "dataclass":
                value.is_dataclass = True
                for keyword in node.keywords if isinstance(node, ast.Call) else []:
                    if keyword.arg == "kw_only":
                        value.kw_only = self.evaluate(keyword.value, scope) is True
            elif callee.name.split(".")[0] not in TRANSPARENT:
                value.opened = f"@{callee.name} may change it"
            return value
        return self.decorate(node, value, scope)


def spread(value: Value, targets: list[ast.expr]) -> list[Value] | None:
    """What each target of an unpacking gets; None where it is not decidable."""
    items = iterate(value)
    rest = [index for index, target in enumerate(targets) if isinstance(target, ast.Starred)]
    if items is None or len(items) < len(targets) - len(rest):
        return None
    if not rest:
        return items if len(items) == len(targets) else None
    first, after = rest[0], len(targets) - rest[0] - 1
    last = len(items) - after
    return [*items[:first], items[first:last], *items[last:]]
