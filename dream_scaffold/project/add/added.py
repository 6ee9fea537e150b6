"""What was added, or would be."""

from dataclasses import dataclass, field
from pathlib import Path

from ..update.journal import Write


@dataclass(frozen=True, kw_only=True)
class Added:
    """The outcome of one `dream add`."""

    project: Path
    kind: str
    """callback, hook or config."""

    name: str
    writes: list[Write] = field(default_factory=list)
    """The files that change; none: it was there already."""

    notes: list[str] = field(default_factory=list)
    """What is left to do by hand, or to know."""

    is_pretended: bool = False
