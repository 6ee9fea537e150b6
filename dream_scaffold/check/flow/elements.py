"""What stands at a path, and what a loop over something binds."""

from ..facts import (
    Attribute,
    Call,
    Code,
    Constant,
    Derived,
    Display,
    Either,
    Foreign,
    Item,
    Path,
    Term,
    Unsure,
)
from ..values.domain import Class

ALIKE = ("reversed", "list", "tuple", "sorted", "iter", "set", "tqdm", "islice", "deepcopy")
"""Calls whose elements are those of their first argument."""

CHILDREN = ("values", "children", "items", "named_children")


class Elements:
    """Knows what was assigned to paths."""

    def __init__(self) -> None:
        self.attributes: dict[str, Term] = {}
        """Path -> what was assigned to it."""

        self.instances: dict[str, Class] = {}
        """Path -> the project's class of the object there."""

    def read(self, dotted: str) -> Term:
        """What stands at a path: a plain value itself, an object under its path."""
        known = self.attributes.get(dotted)
        if isinstance(known, (Path, Constant, Derived, Foreign, Attribute, Code)):
            return known
        path = Path(dotted)
        if known is not None and dotted not in self.instances:
            path.origins |= known.origins
        return path

    def element(self, items: Term) -> Term:
        """What a loop over `items` binds."""
        if isinstance(items, Path):
            return self.read(f"{items.dotted}.*")
        if isinstance(items, Display) and items.kind != "dict" and items.items:
            return either(list(items.items))
        if isinstance(items, Display) and items.keys:
            return either(list(items.keys))
        if isinstance(items, Either):
            return either([self.element(choice) for choice in items.choices])
        if isinstance(items, Call):
            return self.element_of_call(items)
        return Item(items)

    def element_of_call(self, call: Call) -> Term:
        first = call.arguments[0] if call.arguments else None
        receiver = call.receiver
        if call.last == "enumerate" and first is not None:
            return Display("tuple", (Derived("index", ()), self.element(first)))
        if call.last == "zip" and not call.is_open:
            return Display("tuple", tuple(map(self.element, call.arguments)))
        if call.last in ALIKE and first is not None:
            return self.element(first)
        inner: Term | None = None
        if isinstance(receiver, Path) and call.last in ("modules", "named_modules"):
            inner = Path(f"{receiver.dotted}.**")
        elif receiver is not None and call.last in (
            "values",
            "children",
            "items",
            "named_children",
        ):
            inner = self.element(receiver)
            if isinstance(receiver, Display):
                inner = either(list(receiver.items))
        if inner is None:
            return Item(call)
        if call.last in ("items", "named_children", "named_modules"):
            return Display("tuple", (Derived("index", ()), inner))
        return inner


def either(terms: list[Term]) -> Term:
    """One of several terms; just the one where they are the same."""
    distinct = list({id(term): term for term in terms}.values())
    if not distinct:  # The elements of an empty display.
        return Unsure()
    first = distinct[0]
    if all(_same(first, term) for term in distinct):
        return first
    return Either(tuple(distinct[:20]))


def _same(one: Term, other: Term) -> bool:
    if one is other:
        return True
    if isinstance(one, Path) and isinstance(other, Path):
        return one.dotted == other.dotted
    if isinstance(one, Constant) and isinstance(other, Constant):
        return type(one.value) is type(other.value) and one.value == other.value
    return isinstance(one, Foreign) and isinstance(other, Foreign) and one.name == other.name
