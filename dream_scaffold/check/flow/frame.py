"""Names and circumstances while a body is followed; terms that no rule sees."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ..facts import Guard, Spot, Term
from ..facts.terms import NOTHING
from ..source import Module
from ..values.domain import Class, FunctionNode, Namespace, Scope


class Frame:
    """One function, or comprehension, that is being followed."""

    __slots__ = (
        "constructing",
        "guards",
        "is_over",
        "module",
        "names",
        "outer",
        "owner",
        "receiver",
        "returns",
        "scope",
        "via",
        "yields",
    )

    def __init__(self, scope: Scope, outer: "Frame | None" = None) -> None:
        self.scope = scope
        """What is looked up where no frame knows a name."""

        self.outer = outer
        self.module: Module = scope.module
        self.names: dict[str, Term] = {}
        self.owner: Class | None = None
        """The class that `super()` starts from."""

        self.receiver: Term | None = None
        self.guards: tuple[Guard, ...] = ()
        self.via: tuple[Spot, ...] = ()
        self.constructing = False
        self.returns: list[Term] = []
        self.yields = False
        """Whether it turned out to be a generator."""

        self.is_over = False
        """Whether what follows cannot be reached."""

    def lookup(self, name: str) -> Term | None:
        frame: Frame | None = self
        while frame is not None:
            if name in frame.names:
                return frame.names[name]
            frame = frame.outer
        return None

    def inner(self) -> "Frame":
        """A frame for a comprehension or function inside this one."""
        frame = Frame(self.scope, self)
        frame.owner, frame.receiver = self.owner, self.receiver
        frame.guards, frame.via, frame.constructing = self.guards, self.via, self.constructing
        return frame


class Given(NamedTuple):
    """What a call is given."""

    positional: Sequence[Term] = ()
    keywords: Mapping[str, Term] = MappingProxyType({})
    is_open: bool = False
    """Whether there may be arguments that are not shown."""


class Local(NamedTuple):
    """A function that is defined inside one that is followed."""

    node: FunctionNode
    frame: Frame


class Space(Term):
    """A module of the project."""

    __slots__ = ("namespace",)

    def __init__(self, namespace: Namespace) -> None:
        super().__init__(NOTHING)
        self.namespace = namespace


class Above(Term):
    """What `super()` returns."""

    __slots__ = ("owner", "receiver")

    def __init__(self, owner: Class, receiver: Term) -> None:
        super().__init__(receiver.origins)
        self.owner = owner
        self.receiver = receiver
