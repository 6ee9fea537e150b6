"""Methods of literals and containers, called for real as far as all is decided."""

import re

from .displays import WIDE, is_key
from .domain import Arguments, Method, Record, Site, Unknown, Value
from .expressions import Expressions
from .literals import is_open, literal, spoil, truth
from .operators import LONGEST
from .streams import Stream, iterate

TAKES_ITEMS = ("extend", "update", "join", "union", "intersection", "difference")
"""Methods whose arguments may be any iterable."""

TAKES_ANYTHING = ("append", "insert", "setdefault", "get", "pop", "format")
"""Methods that do not look at every argument they are given."""

CHANGES = (
    *("append", "extend", "insert", "pop", "popitem", "remove", "clear", "sort", "reverse"),
    *("update", "setdefault", "add", "discard"),
)


def call_method(machine: Expressions, callee: Method, arguments: Arguments, site: Site) -> Value:
    receiver, name = callee.receiver, callee.name
    given, keywords = list(arguments.positional), dict(arguments.keywords)
    if name in TAKES_ITEMS:
        given = [_items(value) for value in given]
    why = _undecided(receiver, name, given, keywords, site) or arguments.open
    if name == "sort" and why is None:
        key = keywords.get("key")
        if key is not None:
            keywords["key"] = lambda value: machine.decided(key, [value], site)
    if why is None and not stays_small(receiver, name, given):
        why = Unknown("is too large", site)
    if why is None:
        try:
            return _plain(getattr(receiver, name)(*given, **keywords))
        except LookupError as error:
            return machine.failed(type(error).__name__, site, "raises")
        except (TypeError, ValueError, AttributeError) as error:
            why = Unknown("raises", site)
            if name not in CHANGES:
                return machine.failed(type(error).__name__, site, "raises")
    if name in CHANGES:
        spoil(receiver, why)
    return why


def _items(value: Value) -> Value:
    if isinstance(value, (Stream, Record)):
        items = iterate(value)
        return Unknown("is of unknown length") if items is None else items
    return value


def _plain(result: object) -> Value:
    is_value = isinstance(result, (int, str, float, tuple, list, dict, set, bytes))
    if is_value or result is None or not hasattr(result, "__iter__"):
        return result
    return list(result)


def _undecided(
    receiver: Value, name: str, given: list[Value], keywords: dict[str, Value], site: Site
) -> Unknown | None:
    """Why the method cannot be called; None if it can."""
    if is_open(receiver) and name not in ("append", "clear"):
        return Unknown(site=site)
    if not isinstance(receiver, (list, dict, set)):
        if literal(given) and literal(keywords) and literal(receiver):
            return None
        return _first_unknown(given) or Unknown(site=site)
    if name == "sort":
        is_plain = literal(receiver) and truth(keywords.get("reverse", False)) is not None
        return None if is_plain else Unknown(site=site)
    if name in ("get", "pop", "setdefault", "fromkeys") and given and not is_key(given[0]):
        return _first_unknown(given) or Unknown(site=site)
    if name == "update" or name == "extend":
        bad = [item for item in given if not isinstance(item, (list, tuple, dict, str, set))]
        bad += [item for item in given if is_open(item)]
        if name == "update" and isinstance(receiver, dict):
            bad += [item for item in given if not isinstance(item, dict) and not literal(item)]
        return (_first_unknown(bad) or Unknown(site=site)) if bad else None
    if name in ("append", "copy", "items", "keys", "values", "reverse", "clear", "popitem"):
        return None
    if name in ("get", "pop", "setdefault", "insert"):
        return None if literal(given[:1]) else _first_unknown(given) or Unknown(site=site)
    return None if literal(given) and literal(receiver) else Unknown(site=site)


def _first_unknown(values: list[Value]) -> Unknown | None:
    return next((value for value in values if isinstance(value, Unknown)), None)


def stays_small(receiver: Value, name: str, given: list[Value]) -> bool:
    """Whether what a method makes is of bounded size."""
    own = len(receiver) if isinstance(receiver, (str, list, dict)) else 0
    sizes = [len(item) for item in given if isinstance(item, (str, list, tuple, dict, set))]
    if name == "replace":
        return (own + 1) * (max(sizes, default=0) + 1) <= LONGEST
    if name in ("rjust", "ljust", "center", "zfill"):
        return all(item <= LONGEST for item in given if isinstance(item, int))
    if name == "format":
        nested = re.search(r"\{[^{}]*:[^{}]*\{", str(receiver))  # A width that is itself given.
        return nested is None and not WIDE.search(str(receiver))
    if name == "join" and given and isinstance(given[0], (str, list, tuple, dict, set)):
        texts = [len(item) for item in given[0] if isinstance(item, str)]
        return own * len(texts) + sum(texts) <= LONGEST
    return name not in ("extend", "update") or own + sum(sizes) <= LONGEST
