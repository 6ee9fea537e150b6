"""What a hook does, in the order in which it does it; helpers of the project followed."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from .findings import Note, Place
from .spots import Spot
from .terms import Call, Constant, Display, Foreign, Path, Term


class Guard(NamedTuple):
    """What has to be so for an act to happen, or what goes on around it."""

    kind: Literal["if", "else", "after", "loop", "with", "try", "except", "callback"]
    """`after`: what comes after an `if` that ended the function. `callback`: a function that
    was handed to code which the project does not show."""

    test: Term
    """The condition, the context manager, what is looped over, the exceptions."""

    spot: Spot


class Act(NamedTuple):
    """One thing that a hook does."""

    kind: Literal[
        "call", "set", "grow", "delete", "return", "raise", "leave", "test", "format", "yield"
    ]
    """`grow`: an augmented assignment. `test`: a value is asked for its truth. `format`: it
    becomes part of a text. `leave`: `break`."""

    term: Term
    """The call, the value, the condition."""

    spot: Spot
    guards: tuple[Guard, ...] = ()
    target: Term | None = None
    """What is assigned to."""

    via: tuple[Spot, ...] = ()
    """The calls that led here from the hook itself."""

    constructing: bool = False
    """Whether it happens inside the constructor of a module."""

    @property
    def place(self) -> Place:
        return self.spot.place

    @property
    def notes(self) -> tuple[Note, ...]:
        """Where the hook calls what leads here."""
        return tuple(Note("called from here", spot.place) for spot in self.via)

    @property
    def is_certain(self) -> bool:
        """Whether every run of the hook does it."""
        return all(guard.kind in ("with", "loop", "try") for guard in self.guards)


KNOWN_PACKAGES = frozenset(
    {"torch", "dream_trainer", "torchdata", "torchmetrics", "torchao", "torchvision", "numpy"}
    | {"builtins", "tqdm", "einops", "wandb", "transformers", "rich"}
)
"""Packages whose functions do to a trainer no more than what their names say."""


@dataclass(frozen=True)
class Trace:
    """What one function does."""

    name: str
    spot: Spot
    """Its name, where it is defined."""

    acts: tuple[Act, ...]
    is_cut: bool = False
    """Whether it was too long or too deep to be followed to the end."""

    parameters: tuple[str, ...] = ()
    """The names of its arguments, without `self`."""

    @property
    def place(self) -> Place:
        return self.spot.place

    def calls(self, *names: str) -> Iterator[tuple[Act, Call]]:
        """The calls that it makes; with `names`, those of one of these last names."""
        if not names:
            yield from self._calls
            return
        found = [item for name in names for item in self._by_name.get(name, ())]
        # In the order in which they happen, whatever their names.
        yield from ((act, call) for _, act, call in sorted(found, key=lambda item: item[0]))

    @cached_property
    def _calls(self) -> tuple[tuple[Act, Call], ...]:
        return tuple(
            (act, act.term)
            for act in self.acts
            if act.kind == "call" and isinstance(act.term, Call)
        )

    @cached_property
    def _by_name(self) -> dict[str, list[tuple[int, Act, Call]]]:
        found: dict[str, list[tuple[int, Act, Call]]] = {}
        for index, (act, call) in enumerate(self._calls):
            found.setdefault(call.last, []).append((index, act, call))
        return found

    def of_kind(self, *kinds: str) -> Iterator[Act]:
        return (act for act in self.acts if act.kind in kinds)

    @property
    def returns(self) -> Iterator[Act]:
        """What the function itself returns, not the helpers that it calls."""
        return (act for act in self.acts if act.kind == "return" and not act.via)

    def hands_over(self, *paths: str) -> Call | None:
        """A call that gives one of `paths` to code which the project does not show.

        That code may do whatever the hook seems to leave out.
        """
        for _, call in self.calls():
            if call.is_open and any(part.is_hidden for part in call.parts()):
                return call
            function = call.function
            package = function.name.partition(".")[0] if isinstance(function, Foreign) else ""
            is_own = isinstance(function, Path) and function.root == "self"
            if is_own or package in KNOWN_PACKAGES or package in sys.stdlib_module_names:
                continue
            for given in (*call.arguments, *call.keywords.values()):
                if any(is_within(given, path) for path in paths):
                    return call
        return None

    @property
    def refuses(self) -> bool:
        """Whether all that it ever does is to raise NotImplementedError."""
        first = self.acts[0] if self.acts else None
        # To put a text together, or to make the error, comes before it is raised.
        raised = next((act for act in self.acts if act.kind not in ("call", "format")), first)
        if self.is_cut or raised is None or raised.kind != "raise" or not raised.is_certain:
            return False
        calls = (call for act, call in self.calls() if act is not raised)
        made = all(call.is_foreign("builtins") and "Error" in call.last for call in calls)
        return made and raised.term.mentions("NotImplementedError")

    @property
    def is_empty(self) -> bool:
        """Whether it does nothing at all, and returns nothing."""
        return not self.is_cut and all(
            act.kind == "return" and isinstance(act.term, Constant) and act.term.value is None
            for act in self.acts
        )

    @property
    def is_open(self) -> bool:
        """Whether it may do something that its source does not show."""
        return self.is_cut or self.hands_over("self") is not None


def is_within(term: Term, path: str) -> bool:
    """Whether a term is an object at `path` or below it, or a display of such.

    Of `self` only the trainer itself is meant.
    """
    if isinstance(term, Path):
        return term.dotted == path or (path != "self" and term.dotted.startswith(f"{path}."))
    if isinstance(term, Display):
        return any(is_within(item, path) for item in term.items)
    return any(is_within(choice, path) for choice in term.options() if choice is not term)
