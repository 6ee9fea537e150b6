"""Enumerations: their members are records, each of which there is once."""

from .domain import Class, External, Function, Record, Value
from .literals import literal

CLASSES = ("enum.Enum", "enum.IntEnum", "enum.StrEnum")


def is_enumeration(cls: Value) -> bool:
    """Whether a class derives from one of `enum`."""
    seen: set[int] = set()
    pending: list[Value] = [cls] if isinstance(cls, Class) else []
    while pending:
        base = pending.pop()
        if isinstance(base, External) and base.name in CLASSES:
            return True
        if isinstance(base, Class) and id(base) not in seen:
            seen.add(id(base))
            pending += base.bases
    return False


def make_members(cls: Class) -> None:
    """Turn what the body of an enumeration assigns into its members."""
    values: list[Value] = []
    for name, value in list(cls.members.items()):
        if isinstance(value, Function) or name.startswith("_"):
            continue
        if isinstance(value, External) and value.name == "enum.auto()":
            last = values[-1] if values else 0
            value = last + 1 if isinstance(last, int) else value
        values.append(value)
        member = Record(cls, cls.site)
        member.fields.update(name=name, value=value)
        cls.members[name] = member


def members(cls: Class) -> dict[str, Record]:
    """Name -> member."""
    found = cls.members.items()
    return {name: item for name, item in found if isinstance(item, Record) and item.cls is cls}


def member_of(cls: Class, value: Value) -> Record | None:
    """The member that `cls(value)` is; None where that is not decidable."""
    if isinstance(value, Record) and value.cls is cls:
        return value
    for item in members(cls).values():
        known = item.fields["value"]
        if literal(value) and literal(known) and value == known:
            return item
    return None


def plain(value: Value) -> Value:
    """The text or number that a member also is, in comparisons; anything else as it is."""
    if isinstance(value, Record) and isinstance(value.cls, Class) and is_enumeration(value.cls):
        names = [base.name for base in value.cls.bases if isinstance(base, External)]
        if any(name in ("builtins.str", "builtins.int", *CLASSES[1:]) for name in names):
            return value.fields["value"]
    return value
