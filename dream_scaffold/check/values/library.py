"""Functions of Python's library that take iterables or call what they are given."""

import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any

from .classes import find_member
from .displays import is_key
from .domain import (
    Arguments,
    Bound,
    Class,
    External,
    Function,
    Method,
    Partial,
    Preset,
    Record,
    Site,
    Unknown,
    Value,
)
from .expressions import Expressions
from .literals import is_open, literal, truth
from .operators import LONGEST
from .streams import Stream, iterate

Handler = Callable[[Expressions, Arguments, Site], Value]

MANY = 1000


def _lists(values: list[Value]) -> list[list[Value]] | None:
    """What each of several iterables gives; None where one is not decided."""
    found = [iterate(value) for value in values]
    return None if None in found else [items for items in found if items is not None]


def _len(machine: Expressions, arguments: Arguments, site: Site) -> Value:
    value = arguments.positional[0] if arguments.positional else None
    if isinstance(value, (list, tuple, dict, set, str)) and not is_open(value):
        return len(value)
    if isinstance(value, Class) and (items := iterate(value)) is not None:
        return len(items)
    if isinstance(value, Record) and isinstance(value.cls, Class):
        found = find_member(value.cls, "__len__")
        if found is not None:
            return machine.call(machine.bind(found[1], value), Arguments([], {}, {}), site)
        items = iterate(value)
        return Unknown(site=site) if items is None else len(items)
    return _why(arguments, site)


def _why(arguments: Arguments, site: Site) -> Unknown:
    """The reason of an undecided argument, or that of the call."""
    given = (*arguments.positional, *arguments.keywords.values())
    return next((value for value in given if isinstance(value, Unknown)), Unknown(site=site))


def _quantifier(stop: bool) -> Handler:
    """`any` (ends at the first true item) and `all` (ends at the first false one)."""

    def handle(machine: Expressions, arguments: Arguments, site: Site) -> Value:
        items = iterate(arguments.positional[0]) if arguments.positional else None
        if items is None:
            return _why(arguments, site)
        known = [truth(item) for item in items]
        if stop in known:
            return stop
        return Unknown(site=site) if None in known else not stop

    return handle


def _stream(function: Callable[..., Any]) -> Handler:
    """A function of iterables alone, such as `zip`, that gives an iterator."""

    def handle(machine: Expressions, arguments: Arguments, site: Site) -> Value:
        streams = {id(value): value for value in arguments.positional if isinstance(value, Stream)}
        taken = {key: iterate(stream) for key, stream in streams.items()}
        sizes = [len(value) for value in arguments.positional if isinstance(value, (list, tuple))]
        if sum(sizes) > LONGEST:
            return Unknown("is too large", site)
        lists = _lists([value for value in arguments.positional if id(value) not in streams])
        is_open = lists is None or None in taken.values() or arguments.open
        if is_open or not literal(list(arguments.keywords.values())):
            return _why(arguments, site)
        # One that is given twice gives its items by turns; what is left of it stays there.
        shared = {key: iter(items or ()) for key, items in taken.items()}
        rest = iter(lists or ())
        given = [shared[id(v)] if id(v) in shared else next(rest) for v in arguments.positional]
        try:
            items = list(itertools.islice(function(*given, **arguments.keywords), LONGEST + 1))
            for key, stream in streams.items():
                stream.put_back(list(shared[key]))
        except (TypeError, ValueError) as error:
            return machine.failed(type(error).__name__, site, "raises")
        return Stream(lambda: items) if len(items) <= LONGEST else Unknown("is too large", site)

    return handle


def _enumerate(machine: Expressions, arguments: Arguments, site: Site) -> Value:
    start = arguments.keywords.get("start", [*arguments.positional[1:2], 0][0])
    items = iterate(arguments.positional[0]) if arguments.positional else None
    if items is None or not isinstance(start, int):
        return _why(arguments, site)
    return Stream(lambda: list(enumerate(items, start)))


def _map(machine: Expressions, arguments: Arguments, site: Site) -> Value:
    given = _lists(arguments.positional[1:])
    if given is None or not given or arguments.open:
        return machine.escape(arguments, site)
    callee, turns = arguments.positional[0], list(zip(*given, strict=False))[: MANY + 1]
    if len(turns) > MANY:
        return machine.escape(arguments, site)
    return Stream(
        lambda: [machine.call(callee, Arguments(list(turn), {}, {}), site) for turn in turns]
    )


def _filter(machine: Expressions, arguments: Arguments, site: Site) -> Value:
    items = iterate(arguments.positional[1]) if len(arguments.positional) == 2 else None
    if items is None or len(items) > MANY:
        return machine.escape(arguments, site)
    callee = arguments.positional[0]

    def make() -> list[Value] | None:
        kept = []
        for item in items:
            value = item
            if callee is not None:
                value = machine.call(callee, Arguments([item], {}, {}), site)
            if (known := truth(value)) is None:
                return None
            kept += [item] if known else []
        return kept

    return Stream(make)


def _with_key(function: Callable[..., Any], spread: bool) -> Handler:
    """`sorted`, and `min` and `max`, which also take their items one by one."""

    def handle(machine: Expressions, arguments: Arguments, site: Site) -> Value:
        given, keywords = arguments.positional, dict(arguments.keywords)
        items = given if spread and len(given) > 1 else iterate(given[0]) if given else None
        key = keywords.pop("key", None)
        if items is None or arguments.open or not literal([items, *keywords.values()]):
            return _why(arguments, site)
        if key is not None:
            keywords["key"] = lambda item: machine.decided(key, [item], site)
        try:
            return function(items, **keywords)
        except (TypeError, ValueError) as error:
            if key is not None:
                return Unknown(site=site)
            return machine.failed(type(error).__name__, site, "raises")

    return handle


def _reduce(machine: Expressions, arguments: Arguments, site: Site) -> Value:
    given = arguments.positional
    items = iterate(given[1]) if len(given) in (2, 3) else None
    if items is None or len(items) > MANY:
        return machine.escape(arguments, site)
    items = [*given[2:], *items]
    if not items:
        return machine.failed("TypeError", site, "raises TypeError")
    return functools.reduce(
        lambda left, right: machine.call(given[0], Arguments([left, right], {}, {}), site), items
    )


def _next(machine: Expressions, arguments: Arguments, site: Site) -> Value:
    given = arguments.positional
    if not given or not isinstance(given[0], Stream):
        return _why(arguments, site)
    missing = object()
    found = given[0].next(given[1] if len(given) > 1 else missing)
    return found if found is not missing else machine.failed("StopIteration", site, "raises")


def _iter(machine: Expressions, arguments: Arguments, site: Site) -> Value:
    value = arguments.positional[0] if len(arguments.positional) == 1 else None
    if isinstance(value, Stream):
        return value
    items = iterate(value)
    return Unknown(site=site) if items is None else Stream(lambda: items)


def _dict(machine: Expressions, arguments: Arguments, site: Site) -> Value:
    first = arguments.positional[0] if arguments.positional else {}
    if arguments.open or is_open(first):
        return _why(arguments, site)
    if isinstance(first, dict):
        return first | arguments.keywords
    items = iterate(first)
    pairs = None if items is None else _lists(items)
    if pairs is None or not all(len(pair) == 2 and is_key(pair[0]) for pair in pairs):
        return _why(arguments, site)
    return {pair[0]: pair[1] for pair in pairs} | arguments.keywords


def _fromkeys(machine: Expressions, arguments: Arguments, site: Site) -> Value:
    items = iterate(arguments.positional[0]) if arguments.positional else None
    if items is None or not all(map(is_key, items)):
        return _why(arguments, site)
    return dict.fromkeys(items, [*arguments.positional[1:2], None][0])


def _set(machine: Expressions, arguments: Arguments, site: Site) -> Value:
    value = arguments.positional[0] if arguments.positional else []
    items = list(value) if isinstance(value, set) else iterate(value)
    if items is None or not literal(items) or not all(map(is_key, items)):
        return _why(arguments, site)
    return set(items)


def _hasattr(machine: Expressions, arguments: Arguments, site: Site) -> Value:
    given = arguments.positional
    if len(given) == 2 and isinstance(given[1], str):
        owner = given[0]
        if isinstance(owner, Record) and owner.opened is None:
            if given[1] in owner.fields:
                return True
            if isinstance(owner.cls, Class):
                return find_member(owner.cls, given[1]) is not None or Unknown(site=site)
    return Unknown(site=site)


def _callable(machine: Expressions, arguments: Arguments, site: Site) -> Value:
    value = arguments.positional[0] if arguments.positional else None
    if isinstance(value, (Function, Bound, Class, type, Partial, Preset, Method)):
        return True
    return False if literal(value) else Unknown(site=site)


def _type(machine: Expressions, arguments: Arguments, site: Site) -> Value:
    value = arguments.positional[0] if len(arguments.positional) == 1 else None
    if isinstance(value, Record):
        return value.cls
    if literal(value) and value is not None:
        return External(f"builtins.{type(value).__name__}")
    return Unknown(site=site)


def _asdict(machine: Expressions, arguments: Arguments, site: Site) -> Value:
    record = arguments.positional[0] if arguments.positional else None

    def lower(value: Value, depth: int) -> Value:
        if isinstance(value, Record) and value.opened is None and depth < 10:
            return {name: lower(inner, depth + 1) for name, inner in value.fields.items()}
        return value if literal(value) else Unknown(site=site)

    return lower(record, 0)


def _operator(function: Callable[[Any, Any], Any]) -> Handler:
    def handle(machine: Expressions, arguments: Arguments, site: Site) -> Value:
        if not literal(arguments.positional) or len(arguments.positional) != 2:
            return _why(arguments, site)
        if not all(abs(item) < 1 << 64 for item in arguments.positional if isinstance(item, int)):
            return Unknown("is too large", site)
        if any(isinstance(item, (str, list, tuple)) for item in arguments.positional):
            return Unknown(site=site)
        try:
            return function(*arguments.positional)
        except (TypeError, ArithmeticError) as error:
            return machine.failed(type(error).__name__, site, "raises")

    return handle


LIBRARY: dict[str, Handler] = {
    "builtins.len": _len,
    "builtins.any": _quantifier(True),
    "builtins.all": _quantifier(False),
    "builtins.zip": _stream(zip),
    "builtins.reversed": _stream(reversed),
    "builtins.enumerate": _enumerate,
    "builtins.map": _map,
    "builtins.filter": _filter,
    "builtins.sorted": _with_key(sorted, spread=False),
    "builtins.min": _with_key(min, spread=True),
    "builtins.max": _with_key(max, spread=True),
    "builtins.next": _next,
    "builtins.iter": _iter,
    "builtins.dict": _dict,
    "builtins.dict.fromkeys": _fromkeys,
    "builtins.set": _set,
    "builtins.hasattr": _hasattr,
    "builtins.callable": _callable,
    "builtins.type": _type,
    "dataclasses.asdict": _asdict,
    "functools.reduce": _reduce,
    "itertools.chain": _stream(itertools.chain),
    "itertools.chain.from_iterable": lambda machine, arguments, site: _stream(itertools.chain)(
        machine, arguments._replace(positional=iterate(arguments.positional[0]) or []), site
    ),
    "itertools.product": _stream(itertools.product),
    "itertools.accumulate": _stream(itertools.accumulate),
    "operator.add": _operator(operator.add),
    "operator.sub": _operator(operator.sub),
    "operator.mul": _operator(operator.mul),
    "enum.auto": lambda machine, arguments, site: External("enum.auto()"),
    "contextlib.suppress": lambda machine, arguments, site: External("contextlib.suppress()"),
    "contextlib.nullcontext": lambda machine, arguments, site: [*arguments.positional, None][0],
}
