"""Classes of the project: order of their bases, members, dataclass fields."""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import MISSING, is_dataclass
from dataclasses import fields as dataclass_fields
from typing import NamedTuple

from ..hinge import TRAINERS, configs
from .domain import Class, External, FieldSpec, Origin, Record, Site, Unknown, Value

CLOSED_BASES = (
    *("abc.ABC", "builtins.object", "typing.Generic", "typing.Protocol"),
    *("typing.NamedTuple", "enum.Enum", "enum.IntEnum", "enum.StrEnum", "builtins.str"),
)
"""Foreign bases that add no members worth knowing."""


MOST_BASES = 200
"""Of a class: those behind them are not looked at, so that no order takes long to find."""


def linearize(cls: Class) -> list[Value]:
    """The class and its bases in the order in which attributes are looked up."""
    pending = [cls]
    while pending:
        last = pending[-1]
        owed = [base for base in last.bases if isinstance(base, Class) and not base.order]
        if owed:
            pending += owed
            continue
        last.order = last.order or _merge(last)
        pending.pop()
    return cls.order


def _merge(cls: Class) -> list[Value]:
    """C3, and where that finds no order the first that comes: Python would refuse the class."""
    bases = cls.bases[:MOST_BASES]
    queues = [base.order[::-1] if isinstance(base, Class) else [base] for base in bases]
    queues.append(bases[::-1])
    behind = Counter(_key(item) for queue in queues for item in queue[:-1])
    order: list[Value] = [cls]
    taken: set[object] = set()
    while len(order) < MOST_BASES:
        for queue in queues:
            while queue and _key(queue[-1]) in taken:
                queue.pop()
                if queue:
                    behind[_key(queue[-1])] -= 1
        heads = [queue[-1] for queue in queues if queue]
        if not heads:
            break
        head = next((item for item in heads if not behind[_key(item)]), heads[0])
        order.append(head)
        taken.add(_key(head))
    return order


def _key(value: Value) -> object:
    return value.name if isinstance(value, External) else id(value)


def find_member(cls: Class, name: str, after: Class | None = None) -> tuple[Class, Value] | None:
    """The first class in line that has `name`, and what it has; None if none does."""
    order = linearize(cls)
    if after is not None and after in order:
        order = order[order.index(after) + 1 :]
    for base in order:
        if isinstance(base, Class) and name in base.members:
            return base, base.members[name]
    return None


def parameter_class(cls: "Class | type") -> type | None:
    """The parameter class of the runtime that `cls` is or derives from."""
    if isinstance(cls, type):
        return cls
    return next((base for base in linearize(cls) if isinstance(base, type)), None)


def is_config(cls: "Class | type") -> bool:
    """Whether an instance of `cls` is the configuration of a trainer."""
    found = parameter_class(cls)
    return found is not None and issubclass(found, configs.AbstractTrainerConfig)


def is_trainer(cls: Class) -> bool:
    return any(is_runtime_trainer(base) for base in linearize(cls))


def is_runtime_trainer(base: Value) -> bool:
    return isinstance(base, External) and base.within("dream_trainer") and base.last in TRAINERS


def derives(cls: "Class | type", base: Value) -> bool:
    """Whether `cls` is `base` or derives from it."""
    if isinstance(cls, type):
        return isinstance(base, type) and issubclass(cls, base)
    for item in linearize(cls):
        if isinstance(item, Class) and isinstance(base, Class):
            if item.node is base.node:
                return True
        elif isinstance(item, type) and isinstance(base, type) and issubclass(item, base):
            return True
    return False


def why_open(cls: Class) -> str | None:
    """Why `cls` may have members that the project's source does not show."""
    for base in linearize(cls):
        if isinstance(base, Class):
            if base.opened:
                return base.opened
            if "__getattr__" in base.members:
                return f"{base.name} defines __getattr__"
        elif isinstance(base, Unknown):
            return base.reason
        elif isinstance(base, External):
            known = base.within("dream_trainer") or base.name in CLOSED_BASES
            if not known:
                return f"{base.name} is outside the project"
        elif not isinstance(base, type):
            return f"a base of {cls.name} is not a class"
    return None


def remove(owner: Value, name: Value) -> None:
    """What `del owner.name` does."""
    if isinstance(owner, Record) and isinstance(name, str):
        owner.fields.pop(name, None)
    elif isinstance(owner, Class) and isinstance(name, str):
        owner.members.pop(name, None)
    elif isinstance(owner, Class):
        owner.opened = "a member of it is deleted by a name that is not decidable"


def intercepts(cls: "Class | type", name: str) -> bool:
    """Whether code of the project decides what setting an attribute does."""
    if not isinstance(cls, Class):
        return False
    found = find_member(cls, name)
    is_property = found is not None and getattr(found[1], "kind", "") == "property"
    return is_property or find_member(cls, "__setattr__") is not None


class Field(NamedTuple):
    """One field of a dataclass and what it holds when it is not given."""

    name: str
    default: Value
    factory: Value
    required: bool
    init: bool
    site: Site | None
    """Where its default is written; None in the runtime."""

    passed: bool = False
    """An `InitVar`: not kept, but handed to `__post_init__`."""

    named: bool = False
    """Whether it is given by its name only."""


def record_fields(cls: "Class | type") -> dict[str, Field]:
    """The fields that the generated `__init__` of a dataclass takes, in order."""
    if isinstance(cls, type):
        return {field.name: field for field in _real_fields(cls)}
    fields: dict[str, Field] = {}
    for base in reversed(linearize(cls)):
        if isinstance(base, type):
            fields |= {field.name: field for field in _real_fields(base)}
        elif isinstance(base, Class) and base.is_dataclass:
            fields |= {field.name: field for field in _written_fields(base)}
    return fields


def _real_fields(cls: type) -> Iterator[Field]:
    for field in dataclass_fields(cls):
        factory = None if field.default_factory is MISSING else field.default_factory
        required = field.default is MISSING and factory is None
        default = None if field.default is MISSING else field.default
        named = bool(field.kw_only)
        yield Field(field.name, default, factory, required, field.init, None, named=named)


def _written_fields(cls: Class) -> Iterator[Field]:
    named = cls.kw_only
    for name, annotation in cls.annotations.items():
        outermost = annotation.value if isinstance(annotation, ast.Subscript) else annotation
        kind = outermost.attr if isinstance(outermost, ast.Attribute) else ""
        kind = outermost.id if isinstance(outermost, ast.Name) else kind
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            kind = annotation.value.partition("[")[0].rpartition(".")[2]
        named |= kind == "KW_ONLY"
        if kind in ("ClassVar", "KW_ONLY"):
            continue
        site = Site(cls.site.module, annotation)
        passed = kind == "InitVar"
        value = cls.members.get(name)
        if isinstance(value, FieldSpec):
            has_default = value.has_default or value.factory is not None
            made = Field(name, value.default, value.factory, not has_default, value.init, site)
        else:
            made = Field(name, value, None, name not in cls.members, True, site)
        yield made._replace(passed=passed, named=named)


def lift(instance: object, site: Site) -> Value:
    """A real parameter object as a record; anything else as it is."""
    if not is_dataclass(instance) or isinstance(instance, type):
        return instance
    record = Record(type(instance), site)
    for field in dataclass_fields(instance):
        record.fields[field.name] = lift(getattr(instance, field.name), site)
        record.origins[field.name] = Origin(site, explicit=False)
    return record
