"""Abstract values: what an expression of the user's source stands for.

Literals and containers are plain Python objects, parameter classes of the runtime are
the real classes. Everything else is one of the classes below.
"""

import ast
from collections.abc import Mapping
from typing import NamedTuple

from ..facts import Place
from ..source import Module

Value = object
"""Any of: a literal, a container of values, a parameter class, or a class below."""


class Site(NamedTuple):
    """A piece of source that a value comes from."""

    module: Module
    node: ast.AST

    @property
    def place(self) -> Place:
        return self.module.place(self.node)


UNDECIDABLE = "cannot be decided from source"


class Unknown:
    """A value that cannot be decided from source, and why: the source and what holds of it."""

    __slots__ = ("reason", "site")

    def __init__(self, reason: str = UNDECIDABLE, site: Site | None = None) -> None:
        self.reason = reason
        self.site = site

    @property
    def text(self) -> str:
        return self.reason if self.site is None else f"`{shorten(self.site.node)}` {self.reason}"


class External:
    """A name from outside the project, by its dotted path."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def last(self) -> str:
        return self.name.rpartition(".")[2]

    def within(self, package: str) -> bool:
        return self.name == package or self.name.startswith(package + ".")


class Scope:
    """Names and their values, in a module, function or class body."""

    __slots__ = ("function", "is_class", "module", "names", "outer", "receiver", "stars")

    def __init__(self, module: Module, outer: "Scope | None" = None) -> None:
        self.module = module
        self.outer = outer
        self.names: dict[str, Value] = {}
        self.is_class = False
        self.function: Function | None = None
        self.receiver: Value = None
        self.stars: list[str] = []
        """Foreign modules whose every name was imported."""

    def lookup(self, name: str) -> "Scope | None":
        """The innermost scope that knows `name`."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope
            scope = scope.outer
        return None

    @property
    def enclosing(self) -> "Scope":
        """What a function defined here closes over: a class body is never part of it."""
        scope = self
        while scope.is_class and scope.outer is not None:
            scope = scope.outer
        return scope

    @property
    def top(self) -> "Scope":
        scope = self
        while scope.outer is not None:
            scope = scope.outer
        return scope


class Namespace:
    """A module of the project as a value."""

    __slots__ = ("module", "scope")

    def __init__(self, module: Module, scope: Scope) -> None:
        self.module = module
        self.scope = scope


FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class Function:
    """A function or lambda of the project, with what it closes over."""

    __slots__ = ("abstract", "defaults", "kind", "node", "opaque", "owner", "scope", "site")

    def __init__(self, node: FunctionNode, scope: Scope, defaults: Mapping[str, Value]) -> None:
        self.node = node
        self.scope = scope
        self.defaults = defaults
        self.site = Site(scope.module, node)
        self.kind = "function"
        self.owner: Class | None = None
        self.abstract = False
        self.opaque = False
        """Whether a foreign decorator may have replaced it."""

    @property
    def name(self) -> str:
        return "lambda" if isinstance(self.node, ast.Lambda) else self.node.name


class Bound:
    """A method together with its object or class."""

    __slots__ = ("function", "receiver")

    def __init__(self, function: Function, receiver: Value) -> None:
        self.function = function
        self.receiver = receiver


class Class:
    """A class that the project defines."""

    __slots__ = (
        "annotations",
        "bases",
        "is_dataclass",
        "kw_only",
        "members",
        "node",
        "opened",
        "order",
        "scope",
        "site",
    )

    def __init__(self, node: ast.ClassDef, bases: list[Value], scope: Scope) -> None:
        self.node = node
        self.bases = bases
        self.order: list[Value] = []  # Filled by `linearize`.
        self.scope = scope
        self.members = scope.names
        self.site = Site(scope.module, node)
        self.annotations: dict[str, ast.expr] = {}
        self.is_dataclass = False
        self.kw_only = False
        self.opened: str | None = None
        """Why the class may have members that its source does not show."""

    @property
    def name(self) -> str:
        return self.node.name


class Origin(NamedTuple):
    """Where a field of a record got its value."""

    site: Site
    explicit: bool
    """False: it is a default that nothing overrides."""


class Flaw(NamedTuple):
    """What a class refuses at the construction of a record."""

    code: str
    fact: str
    remedy: str
    site: Site


class Record:
    """An instance of a dataclass, or of any other class of the project. Mutable, as they are."""

    __slots__ = ("cls", "fields", "flaws", "key", "label", "opened", "origins", "site")

    def __init__(self, cls: "Class | type", site: Site) -> None:
        self.cls = cls
        self.site = site
        self.fields: dict[str, Value] = {}
        self.origins: dict[str, Origin] = {}
        self.flaws: list[Flaw] = []
        self.label: tuple[str, Site] | None = None
        """The factory or variable that people know it by."""

        self.key: str | None = None
        """What `--config` calls it."""

        self.opened: Unknown | None = None
        """Why any field may hold something else than it seems."""

    def forget(self, why: Unknown) -> None:
        """Anything may have been done to this record."""
        if self.opened is why:
            return
        self.opened = why
        for name, value in self.fields.items():
            if isinstance(value, Record):
                value.forget(why)
            else:
                self.fields[name] = why


class Arguments(NamedTuple):
    """The arguments of one call."""

    positional: list[Value]
    keywords: dict[str, Value]
    sites: dict[str, Site]
    """Keyword -> where it is written."""

    open: Unknown | None = None
    """Why there may be arguments that the source does not show."""


class Preset(NamedTuple):
    """A class method of a parameter class, such as `DeviceParameters.FSDP`."""

    cls: Class | type
    name: str


class Method(NamedTuple):
    """A method of a literal or container."""

    receiver: Value
    name: str


class Partial(NamedTuple):
    """What `functools.partial` returns."""

    callee: Value
    arguments: Arguments


class Super(NamedTuple):
    """What `super()` returns inside a method."""

    owner: Class
    receiver: Value


class Inherited(NamedTuple):
    """A method that `super()` found in the runtime rather than in the project."""

    base: Value
    name: str
    receiver: Value


class FieldSpec(NamedTuple):
    """What `dataclasses.field` returns."""

    default: Value
    factory: Value
    has_default: bool
    init: bool


def shorten(node: ast.AST) -> str:
    """The source of a node, short enough for a message."""
    try:
        text = " ".join(ast.unparse(node).split())
    except RecursionError:
        return "..."
    return text if len(text) <= 60 else text[:57] + "..."
