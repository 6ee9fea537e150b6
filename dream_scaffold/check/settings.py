"""Every field of a configuration as one flat table."""

from collections.abc import Iterator

from .configurations import Candidate
from .facts import Place, Setting
from .values.domain import Record, Site, Value
from .values.literals import literal

DEEPEST = 6


def settings_of(candidate: Candidate) -> dict[str, Setting]:
    """Dotted name -> what the field holds, where every path agrees on it."""
    merged: dict[str, Setting] = {}
    places: dict[Site, Place] = {}
    tables = [dict(_flat(value, "", 0, places)) for value in candidate.values]
    for table in tables:
        for name, setting in table.items():
            known = merged.setdefault(name, setting)
            agrees = known.is_known and setting.is_known and known.value == setting.value
            if not agrees:
                merged[name] = known._replace(value=None, is_known=False)
    if any(len(table) != len(merged) for table in tables):
        return {name: item._replace(value=None, is_known=False) for name, item in merged.items()}
    return merged


def _flat(
    value: Value, prefix: str, depth: int, places: dict[Site, Place]
) -> Iterator[tuple[str, Setting]]:
    """The fields of a record; most are defaults, and share the place of the call."""
    if not isinstance(value, Record) or depth > DEEPEST:
        return
    for name, inner in value.fields.items():
        origin = value.origins.get(name)
        site = origin.site if origin is not None else value.site
        if site not in places:
            places[site] = site.place
        is_known = value.opened is None and literal(inner)
        explicit = origin is not None and origin.explicit
        shown = inner if is_known else None
        yield f"{prefix}{name}", Setting(shown, is_known, places[site], explicit)
        yield from _flat(inner, f"{prefix}{name}.", depth + 1, places)
