"""Every rule in its family: what lists and pages of rules are made from."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from ..facts import Rule, Severity

FAMILIES = {
    "DT0": "The check itself",
    "DT1": "Configuration",
    "DT2": "Hooks",
    "DT3": "Lifecycle",
    "DT4": "Data",
    "DT5": "Steps",
    "DT6": "State",
    "DT7": "Launch",
}
"""How the codes of a family begin, and what its rules look at."""


class Entry(NamedTuple):
    """What one rule says of itself."""

    code: str
    name: str
    severity: Severity
    summary: str
    """The first line of the manual."""

    manual: str

    @property
    def family(self) -> str:
        return self.code[:3]


def entry(rule: Rule) -> Entry:
    """A rule as its module describes it."""
    text = (rule.__doc__ or "").strip()
    return Entry(rule.CODE, rule.NAME, rule.SEVERITY, text.partition("\n")[0], text)


def families(rules: Iterable[Rule]) -> Iterator[tuple[str, str, list[Entry]]]:
    """The families that have rules: code, title, and the rules by code."""
    entries = sorted(map(entry, rules))
    for code, members in groupby(entries, lambda each: each.family):
        yield code, FAMILIES.get(code, code), list(members)
