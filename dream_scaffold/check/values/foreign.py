"""Foreign functions that evaluation understands, by their dotted names."""

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import MISSING

from .classes import derives, find_member, record_fields, remove, why_open
from .domain import (
    Arguments,
    Class,
    External,
    FieldSpec,
    Partial,
    Record,
    Site,
    Unknown,
    Value,
)
from .enumerations import is_enumeration
from .expressions import Expressions
from .instances import is_instance
from .library import LIBRARY, Handler
from .literals import truth
from .operators import LARGEST_NUMBER
from .streams import iterate

HARMLESS = ("print", "repr", "isinstance", "issubclass", "id", "hash", "input", "open", "format")
"""Builtins that change nothing they are given."""

HARMLESS_PACKAGES = (
    "abc",
    "dataclasses",
    "json",
    "logging",
    "os",
    "pprint",
    "rich",
    "sys",
    "torch",
    "typing",
    "warnings",
)
"""Packages whose functions leave configurations alone."""


def _sum(values: Iterable[float], start: float = 0) -> float:
    """`sum` of numbers; that of lists takes a time that grows with the square."""
    if not isinstance(start, (int, float, complex)):
        raise TypeError
    return sum(values, start)


def _round(value: float, digits: int | None = None) -> float:
    """`round`, to a number of digits that can be computed."""
    if digits is not None and abs(digits) > 400:
        raise ValueError
    return round(value, digits)


def _prod(values: Iterable[float], start: float = 1) -> float:
    """`math.prod`, as far as the product stays small."""
    for value in values:
        start *= value if isinstance(value, (int, float)) else 0
        if isinstance(start, int) and abs(start) >= LARGEST_NUMBER:
            raise ValueError
    return start


def _hash(value: object) -> int:
    """`hash` of numbers; that of texts differs from run to run."""
    if not isinstance(value, (int, float)):
        raise ValueError
    return hash(value)


def _pow(value: float, exponent: float) -> float:
    """`pow`, as far as the result stays small."""
    if abs(value) > 256 or abs(exponent) > 32:
        raise ValueError
    result: float = value**exponent
    return result


PURE: dict[str, Callable[..., object]] = {
    "builtins.int": int,
    "builtins.float": float,
    "builtins.str": str,
    "builtins.bool": bool,
    "builtins.abs": abs,
    "builtins.sum": _sum,
    "builtins.round": _round,
    "builtins.divmod": divmod,
    "builtins.repr": repr,
    "builtins.ord": ord,
    "builtins.chr": chr,
    "builtins.hash": _hash,
    "builtins.pow": _pow,
    "os.path.join": os.path.join,
    "os.path.basename": os.path.basename,
    "os.path.dirname": os.path.dirname,
    "math.prod": _prod,
    "math.ceil": math.ceil,
    "math.floor": math.floor,
    "math.gcd": math.gcd,
    "math.log2": math.log2,
    "math.sqrt": math.sqrt,
}
"""Foreign functions that are simply called, on literals."""


def _replace(machine: Expressions, arguments: Arguments, site: Site) -> Value:
    record = arguments.positional[0] if arguments.positional else None
    if not isinstance(record, Record):
        return Unknown(site=site)
    changed: Value
    if record.flaws:
        # It was refused already; a second refusal would say nothing new.
        changed = _copied(record, deep=False)
    else:
        fields = record_fields(record.cls)
        kept = {
            name: value
            for name, value in record.fields.items()
            if name in fields and fields[name].init
        }
        keywords = kept | arguments.keywords
        given = arguments._replace(positional=[], keywords=keywords)
        changed = machine.build(record.cls, given, site)
    if isinstance(changed, Record):
        for name, origin in record.origins.items():
            if name not in arguments.keywords:
                changed.origins[name] = origin
        changed.opened = changed.opened or record.opened
    return changed


def _copy(machine: Expressions, arguments: Arguments, site: Site) -> Value:
    return _copied(arguments.positional[0], deep=False) if arguments.positional else None


def _deepcopy(machine: Expressions, arguments: Arguments, site: Site) -> Value:
    return _copied(arguments.positional[0], deep=True) if arguments.positional else None


def _copied(value: Value, deep: bool, copies: dict[int, Value] | None = None) -> Value:
    """A copy of a record or container; a deep one holds once what is held twice."""
    copies = {} if copies is None else copies
    if id(value) in copies:
        return copies[id(value)]
    if isinstance(value, Record) and is_enumeration(value.cls):
        return value
    if isinstance(value, Record):
        copy = copies[id(value)] = Record(value.cls, value.site)
        copy.origins, copy.flaws = dict(value.origins), list(value.flaws)
        copy.label, copy.opened = value.label, value.opened
        copy.fields = {
            name: _copied(inner, deep, copies) if deep else inner
            for name, inner in value.fields.items()
        }
        return copy
    if isinstance(value, list):
        items: list[Value] = []
        copies[id(value)] = items
        items += [_copied(item, deep, copies) if deep else item for item in value]
        return items
    if isinstance(value, set):
        return set(value)
    if isinstance(value, dict):
        pairs: dict[Value, Value] = {}
        copies[id(value)] = pairs
        pairs |= {k: _copied(item, deep, copies) if deep else item for k, item in value.items()}
        return pairs
    return value


def _partial(machine: Expressions, arguments: Arguments, site: Site) -> Value:
    if not arguments.positional:
        return Unknown(site=site)
    rest = arguments._replace(positional=arguments.positional[1:])
    return Partial(arguments.positional[0], rest)


def _field(machine: Expressions, arguments: Arguments, site: Site) -> Value:
    given = arguments.keywords
    default = given.get("default", MISSING)
    init = truth(given.get("init", True)) is not False
    has_default = default is not MISSING
    return FieldSpec(
        default if has_default else None, given.get("default_factory"), has_default, init
    )


def _cast(machine: Expressions, arguments: Arguments, site: Site) -> Value:
    return arguments.positional[1] if len(arguments.positional) > 1 else None


def _list(machine: Expressions, arguments: Arguments, site: Site) -> Value:
    items = iterate(arguments.positional[0]) if arguments.positional else []
    return Unknown(site=site) if items is None else items


def _tuple(machine: Expressions, arguments: Arguments, site: Site) -> Value:
    items = _list(machine, arguments, site)
    return tuple(items) if isinstance(items, list) else items


def _range(machine: Expressions, arguments: Arguments, site: Site) -> Value:
    numbers = [value for value in arguments.positional if isinstance(value, int)]
    if numbers and len(numbers) == len(arguments.positional) <= 3:
        try:
            span = range(*numbers)
            if len(span) <= 1000:
                return list(span)
        except ValueError:
            return Unknown("raises", site)
        except OverflowError:  # Its length is more than any machine can hold.
            return Unknown("is too large", site)
    return Unknown(site=site)


def _isinstance(machine: Expressions, arguments: Arguments, site: Site) -> Value:
    if len(arguments.positional) == 2:
        value, cls = arguments.positional
        known = is_instance(value, cls)
        if known is not None:
            return known
    return Unknown(site=site)


def _issubclass(machine: Expressions, arguments: Arguments, site: Site) -> Value:
    given = arguments.positional
    if len(given) == 2 and all(isinstance(item, (Class, type)) for item in given):
        return derives(given[0], given[1])  # type: ignore[arg-type]
    return Unknown(site=site)


def _vars(machine: Expressions, arguments: Arguments, site: Site) -> Value:
    record = arguments.positional[0] if arguments.positional else None
    if isinstance(record, Record) and record.opened is None:
        return dict(record.fields)
    return Unknown(site=site)


def _getattr(machine: Expressions, arguments: Arguments, site: Site) -> Value:
    given = arguments.positional
    if len(given) >= 2 and isinstance(given[1], str):
        value = machine.attribute(given[0], given[1], site)
        if not isinstance(value, Unknown) or len(given) == 2:
            return value
        owner = given[0]
        if isinstance(owner, Record) and owner.opened is None and isinstance(owner.cls, Class):
            known = find_member(owner.cls, given[1]) or given[1] in owner.fields
            return value if known or why_open(owner.cls) else given[2]
    return Unknown(site=site)


def _setattr(machine: Expressions, arguments: Arguments, site: Site) -> Value:
    given = arguments.positional
    if len(given) == 3:
        machine.assign_attribute(given[0], given[1], given[2], site)
    return None


def _delattr(machine: Expressions, arguments: Arguments, site: Site) -> Value:
    if len(arguments.positional) == 2:
        remove(*arguments.positional)
    return None


def _identity(machine: Expressions, arguments: Arguments, site: Site) -> Value:
    return arguments.positional[0] if arguments.positional else None


FOREIGN: dict[str, Handler] = {
    **LIBRARY,
    "dataclasses.replace": _replace,
    "copy.replace": _replace,
    "copy.copy": _copy,
    "copy.deepcopy": _deepcopy,
    "functools.partial": _partial,
    "dataclasses.field": _field,
    "typing.cast": _cast,
    "builtins.list": _list,
    "builtins.tuple": _tuple,
    "builtins.range": _range,
    "builtins.isinstance": _isinstance,
    "builtins.issubclass": _issubclass,
    "builtins.vars": _vars,
    "builtins.getattr": _getattr,
    "builtins.setattr": _setattr,
    "builtins.delattr": _delattr,
    "functools.cache": _identity,
    "functools.wraps": lambda machine, arguments, site: External("typing.identity"),
    "functools.lru_cache": _identity,
}
