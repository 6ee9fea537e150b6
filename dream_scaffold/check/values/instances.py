"""Whether a value is an instance of a class."""

from .classes import derives
from .domain import Class, External, Record, Value
from .literals import literal

BUILTIN = {cls.__name__: cls for cls in (int, str, float, bool, list, tuple, dict, set, bytes)}


def is_instance(value: Value, cls: Value) -> bool | None:
    """`isinstance(value, cls)`; None where it is not decidable."""
    if isinstance(cls, tuple):
        known = [is_instance(value, item) for item in cls]
        return True if True in known else None if None in known else False
    is_class = isinstance(cls, (Class, type))
    if isinstance(value, Record):
        return derives(value.cls, cls) if is_class else None
    is_plain = isinstance(value, (list, tuple, dict, set)) or literal(value)
    if isinstance(cls, External) and cls.name.startswith("builtins.") and is_plain:
        found = BUILTIN.get(cls.last)
        return None if found is None else isinstance(value, found)
    return False if is_class and is_plain else None
