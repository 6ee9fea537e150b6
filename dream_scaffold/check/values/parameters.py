"""Parameter classes of the runtime: records in, the real classes' verdict out."""

import re
from collections.abc import Iterator
from dataclasses import fields as dataclass_fields
from itertools import product

from ..hinge import configs
from .classes import parameter_class
from .domain import (
    External,
    Flaw,
    Record,
    Site,
    Unknown,
    Value,
)
from .literals import literal

MOST_ALTERNATIVES = 512

DEEPEST = 3
"""Parameter classes within parameter classes."""

DTYPE = re.compile(r"torch\.\w+")

DEGREES = frozenset(configs.AXES.values())


class Undecided(Exception):
    """Part of a record is not decidable."""


def judge(record: Record, site: Site, keywords: dict[str, Site]) -> None:
    """Let the real class refuse `record`, under every value that its unknown fields may have.

    What it refuses is added to the record's flaws, at the keyword that it names.
    """
    cls = parameter_class(record.cls)
    if cls is None or not hasattr(cls, "__post_init__"):
        return
    refusal: configs.ConfigError | None = None
    for values in _alternatives(record):
        try:
            instance = cls(**values)
        except configs.ConfigError as error:
            refusal = refusal or error
        except (TypeError, ValueError, AttributeError):
            return
        else:
            _normalize(record, instance)
            return
    if refusal is not None:
        where = _named_in(refusal.fact, keywords) or site
        record.flaws.append(Flaw(refusal.code, refusal.fact, refusal.remedy, where))


def instances(record: Record) -> list[configs.DeviceParameters]:
    """Every `DeviceParameters` that `record` may be at run time. Empty if it is refused.

    Fields set after construction are not validated, exactly as at run time.
    """
    if record.flaws:
        return []
    unknown = _unknown_fields(record)
    possible = []
    for values in _alternatives(record):
        instance = object.__new__(configs.DeviceParameters)
        if unknown and not _allowed(values):
            continue
        instance.__dict__.update(values)
        possible.append(instance)
    return possible


def unknown_fields(record: Record) -> Iterator[tuple[str, Unknown]]:
    """The undecided fields of a parameter record, and why."""
    for name, value in record.fields.items():
        if isinstance(value, Unknown):
            yield name, value
        elif record.opened is not None:
            yield name, record.opened
        elif not _known(record, name):
            origin = record.origins.get(name)
            yield name, Unknown(site=origin.site if origin else record.site)


def _unknown_fields(record: Record) -> list[str]:
    return [
        field.name
        for field in dataclass_fields(configs.DeviceParameters)
        if not _known(record, field.name)
    ]


def _known(record: Record, name: str) -> bool:
    try:
        _lower(record.fields.get(name, Unknown("")))
    except Undecided:
        return False
    return record.opened is None


def _allowed(values: dict[str, object]) -> bool:
    try:
        configs.DeviceParameters(**values)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return False
    return True


def _alternatives(record: Record) -> Iterator[dict[str, object]]:
    """The fields of `record` as real values, once for each way its unknown ones may turn out."""
    names: list[str] = []
    choices: list[tuple[object, ...]] = []
    beside_auto = any(record.fields.get(name) == "auto" for name in DEGREES)
    count = 1
    cls = parameter_class(record.cls) or configs.DeviceParameters
    for field in dataclass_fields(cls):
        names.append(field.name)
        if _known(record, field.name):
            choices.append((_lower(record.fields[field.name]),))
            continue
        default = getattr(cls, field.name, None)
        if default is None and callable(field.default_factory):
            default = field.default_factory()
        several = _choices(field.name, default, beside_auto)
        # Beyond the limit a field keeps its default: the configuration stays undecided.
        choices.append(several if count * len(several) <= MOST_ALTERNATIVES else (default,))
        count *= len(choices[-1])
    for combination in product(*choices):
        yield dict(zip(names, combination, strict=True))


def _choices(name: str, default: object, beside_auto: bool) -> tuple[object, ...]:
    """What an unknown field may be, as far as anything depends on it."""
    if name in DEGREES:
        # Beside another "auto" only numbers are left.
        return (1, 2) if beside_auto else (1, "auto")
    if isinstance(default, bool):
        return (default, not default)
    return (default,)


def _lower(value: Value, depth: int = 0) -> object:
    """A value as the real class takes it. Raises `Undecided`."""
    if depth > DEEPEST:
        raise Undecided
    if literal(value):
        return value
    if isinstance(value, External) and DTYPE.fullmatch(value.name):
        return value.name
    if isinstance(value, Record) and isinstance(value.cls, type) and value.opened is None:
        instance: object = object.__new__(value.cls)
        for name, inner in value.fields.items():
            instance.__dict__[name] = _lower(inner, depth + 1)
        return instance
    raise Undecided


def _normalize(record: Record, instance: object) -> None:
    """Take over what the real `__post_init__` has rewritten."""
    for name, value in record.fields.items():
        if isinstance(value, (str, External)) and _known(record, name):
            record.fields[name] = getattr(instance, name, value)


def _named_in(fact: str, keywords: dict[str, Site]) -> Site | None:
    """The one keyword that a refusal speaks of; None if it speaks of several, or of none."""
    words = set(fact.replace("=", " ").replace("(", " ").split())
    named = [site for name, site in keywords.items() if name in words]
    return named[0] if len(named) == 1 else None
