"""What is decided about values: literals, truth, containers of unknown content."""

from .domain import Bound, Class, Function, Namespace, Partial, Preset, Record, Unknown, Value


class Rest(Unknown):
    """In a container: any number of further things, or none, may be in it, or have left it."""


def is_open(value: Value) -> bool:
    """Whether it is unknown what a container holds."""
    return isinstance(value, (list, tuple, dict, set)) and any(
        isinstance(item, Rest) for item in value
    )


def spoil(value: Value, why: Unknown) -> None:
    """Anything may have been done to a container."""
    rest = Rest(why.reason, why.site)
    if isinstance(value, list):
        value[:] = [rest]
    elif isinstance(value, dict):
        value.clear()
        value[rest] = rest
    elif isinstance(value, set):
        value.clear()
        value.add(rest)


SCALARS = (bool, int, float, str, bytes, complex, type(None))
LARGEST_LITERAL = 20_000  # Items, those of inner containers included.


def literal(value: Value) -> bool:
    """Whether `value` is a plain Python value of bounded size with nothing undecided in it."""
    pending, left = [value], LARGEST_LITERAL
    while pending:
        item = pending.pop()
        if not isinstance(item, (list, tuple, set, dict)):
            if not isinstance(item, SCALARS):
                return False
            continue
        left -= len(item)  # What is held twice counts twice: it is met twice.
        if left < 0:
            return False
        pending += (*item, *item.values()) if isinstance(item, dict) else item
    return True


def truth(value: Value) -> bool | None:
    """`bool(value)`, or None where it is not decidable."""
    if isinstance(value, (Function, Bound, Class, Partial, Namespace, Preset, type)):
        return True
    if isinstance(value, Record):
        return True if isinstance(value.cls, type) else None
    if isinstance(value, (list, tuple, dict, set)):
        return None if is_open(value) else len(value) > 0
    return bool(value) if literal(value) else None
