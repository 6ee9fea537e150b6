"""What an expression in the body of a hook stands for, as far as rules ask.

A term is no value: nothing is computed. It says where something comes from: an attribute of
the trainer, an argument of the hook, a call of torch with these arguments.
"""

from collections.abc import Iterator, Mapping
from typing import Literal

from .findings import Place
from .spots import CallSpot, Spot

NOTHING: frozenset[str] = frozenset()
HIDDEN = "?"
"""The origin of what cannot be followed: it may depend on anything."""


class Term:
    """What something stands for. `origins` names everything that it depends on.

    Dotted paths (`self.world.dp_rank`, `batch`), foreign names (`torch.bfloat16`), what was
    called (`torch.distributed.get_rank()`), and `?` for what cannot be followed.
    """

    __slots__ = ("origins",)

    def __init__(self, origins: frozenset[str] = NOTHING) -> None:
        self.origins = origins

    def reads(self, *names: str) -> bool:
        """Whether it depends on one of `names`, or on a part of one: `batch` has `batch.x`."""
        return any(
            origin == name or origin.startswith((f"{name}.", f"{name}()"))
            for origin in self.origins
            for name in names
        )

    def mentions(self, *parts: str) -> bool:
        """Whether a segment of a name that it depends on is one of `parts`: `dp_rank`."""
        return any(
            segment.removesuffix("()") in parts
            for origin in self.origins
            for segment in origin.split(".")
        )

    @property
    def is_hidden(self) -> bool:
        """Whether it may depend on something that the source does not show."""
        return HIDDEN in self.origins

    def options(self) -> "Iterator[Term]":
        """What it may be, by branch."""
        yield self

    def walk(self) -> "Iterator[Term]":
        """Itself and everything that it is made of, each once."""
        seen: set[int] = set()
        pending: list[Term] = [self]
        while pending:
            term = pending.pop()
            if id(term) not in seen:
                seen.add(id(term))
                yield term
                pending.extend(reversed(term.parts()))

    def parts(self) -> "tuple[Term, ...]":
        return ()

    def calls(self, *names: str) -> "Iterator[Call]":
        """The calls that it is made of; with `names`, those of one of these last names."""
        for term in self.walk():
            if isinstance(term, Call) and (not names or term.last in names):
                yield term


class Path(Term):
    """An attribute of the trainer (`self.model.layers`) or an argument (`batch`).

    Elements are a segment `*`; a constant text key is a segment of its own.
    """

    __slots__ = ("dotted",)

    def __init__(self, dotted: str) -> None:
        super().__init__(frozenset((dotted,)))
        self.dotted = dotted

    @property
    def last(self) -> str:
        return self.dotted.rpartition(".")[2]

    @property
    def root(self) -> str:
        return self.dotted.partition(".")[0]


class Constant(Term):
    """A plain value."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value


class Foreign(Term):
    """A name from outside the project: `torch.optim.AdamW`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__(frozenset((name,)))
        self.name = name

    @property
    def last(self) -> str:
        return self.name.rpartition(".")[2]


class Code(Term):
    """A function or class of the project."""

    __slots__ = ("definition", "kind", "name")

    def __init__(self, name: str, kind: Literal["function", "class"], definition: object) -> None:
        super().__init__(frozenset((name,)))
        self.name = name
        self.kind = kind
        self.definition = definition
        """What the walker knows of it; nothing that a rule reads."""


class Attribute(Term):
    """An attribute of what is no path: `F.linear(x, w).shape`."""

    __slots__ = ("name", "of")

    def __init__(self, of: Term, name: str) -> None:
        super().__init__(of.origins)
        self.of = of
        self.name = name

    def parts(self) -> tuple[Term, ...]:
        return (self.of,)


class Item(Term):
    """An element of what is no path."""

    __slots__ = ("key", "of")

    def __init__(self, of: Term, key: Term | None = None) -> None:
        super().__init__(of.origins if key is None else of.origins | key.origins)
        self.of = of
        self.key = key

    def parts(self) -> tuple[Term, ...]:
        return (self.of,)


class Display(Term):
    """A list, tuple, set or dict as it is written."""

    __slots__ = ("is_open", "items", "keys", "kind", "spots")

    def __init__(
        self,
        kind: Literal["list", "tuple", "set", "dict"],
        items: tuple[Term, ...],
        keys: tuple[Term, ...] = (),
        is_open: bool = False,
        spots: tuple[Spot, ...] = (),
    ) -> None:
        super().__init__(_together((*items, *keys)))
        self.kind = kind
        self.items = items
        self.keys = keys
        """Of a dict, beside `items`."""

        self.is_open = is_open
        """Whether there may be more: a comprehension, or `**` of something."""

        self.spots = spots
        """Where the keys are written, one for each; none where that is not known."""

    def parts(self) -> tuple[Term, ...]:
        return (*self.keys, *self.items)


class Either(Term):
    """One of several, by branch."""

    __slots__ = ("choices",)

    def __init__(self, choices: tuple[Term, ...]) -> None:
        super().__init__(_together(choices))
        self.choices = choices

    def options(self) -> Iterator[Term]:
        for choice in self.choices:
            yield from choice.options()

    def parts(self) -> tuple[Term, ...]:
        return self.choices


class Derived(Term):
    """Made of others by an operator: `+`, `compare`, `not`, `and`, `or`, `format`."""

    __slots__ = ("of", "operator")

    def __init__(self, operator: str, of: tuple[Term, ...]) -> None:
        super().__init__(_together(of))
        self.operator = operator
        self.of = of

    def parts(self) -> tuple[Term, ...]:
        return self.of


class Unsure(Term):
    """What cannot be followed."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(frozenset((HIDDEN,)))


class Call(Term):
    """A call, and what it returns. A call of the project's own functions is what they return."""

    __slots__ = ("arguments", "function", "is_open", "keywords", "last", "name", "spot")

    def __init__(
        self,
        function: Term,
        arguments: tuple[Term, ...],
        keywords: Mapping[str, Term],
        spot: CallSpot,
        is_open: bool = False,
    ) -> None:
        self.function = function
        self.arguments = arguments
        self.keywords = keywords
        self.spot = spot
        self.is_open = is_open
        """Whether there may be arguments that are not shown: `*args`, `**options`."""

        self.name = _name(function)
        """What is called: `torch.optim.AdamW`, `self.model.forward`, or `.backward`."""

        self.last = self.name.rpartition(".")[2]
        """The last segment of `name`."""

        called = frozenset((f"{self.name}()",))
        receiver = () if isinstance(function, (Path, Foreign, Code)) else (function,)
        super().__init__(_together((*receiver, *arguments, *keywords.values())) | called)

    @property
    def place(self) -> Place:
        return self.spot.place

    @property
    def receiver(self) -> Term | None:
        """What a method is called on; None for a plain function."""
        function = self.function
        if isinstance(function, Path) and "." in function.dotted:
            return Path(function.dotted.rpartition(".")[0])
        return function.of if isinstance(function, Attribute) else None

    def is_foreign(self, *packages: str) -> bool:
        """Whether a name of one of `packages` is called; with none, of any."""
        function = self.function
        if not isinstance(function, Foreign):
            return False
        return not packages or function.name.partition(".")[0] in packages

    def argument(self, position: int, *names: str) -> Term | None:
        """The argument at a position or by one of its keywords; None where it is not written."""
        for name in names:
            if name in self.keywords:
                return self.keywords[name]
        return self.arguments[position] if 0 <= position < len(self.arguments) else None

    def parts(self) -> tuple[Term, ...]:
        return (self.function, *self.arguments, *self.keywords.values())


def _name(function: Term) -> str:
    if isinstance(function, Path):
        return function.dotted
    if isinstance(function, (Foreign, Code)):
        return function.name
    return f".{function.name}" if isinstance(function, Attribute) else ""


def _together(terms: tuple[Term, ...]) -> frozenset[str]:
    return frozenset().union(*[term.origins for term in terms]) if terms else NOTHING
