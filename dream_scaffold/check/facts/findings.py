"""What is found and where: places, matches of rules, findings, and what may be done about them."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

Severity = Literal["error", "warning", "info"]
ORDER: tuple[Severity, ...] = ("error", "warning", "info")


class Place(NamedTuple):
    """A stretch of source. Lines and columns count from 1; the end column is exclusive."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


class Note(NamedTuple):
    """A second place that explains a finding."""

    text: str
    place: Place


class Edit(NamedTuple):
    """Text that takes the place of a stretch of source; an empty stretch is an insertion."""

    place: Place
    text: str


class Fix(NamedTuple):
    """What `--fix` may do about a finding: all of its edits or none."""

    title: str
    """What it does, as an imperative: "Use self.backward(loss)"."""

    edits: tuple[Edit, ...]
    safe: bool = True
    """False: it may change what the program means, and waits for `--unsafe-fixes`."""


class Match(NamedTuple):
    """One hit of a rule, before the runner adds the rule's code and severity."""

    place: Place
    message: str
    help: str = ""
    certain: bool = True
    """A hit that is only possible is reported as an info."""

    config: str | None = None
    notes: tuple[Note, ...] = ()
    fix: Fix | None = None
    severity: Severity | None = None
    """Where a hit is more or less severe than its rule."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What is reported."""

    code: str
    name: str
    severity: Severity
    message: str
    help: str
    place: Place
    configs: tuple[str, ...] = ()
    """The configurations that show it, the first found first; empty if it hangs on none."""

    notes: tuple[Note, ...] = ()
    fix: Fix | None = None

    @property
    def config(self) -> str | None:
        return self.configs[0] if self.configs else None


class Fault(NamedTuple):
    """What the parameter classes themselves refused, by the code of its rule."""

    code: str
    match: Match
