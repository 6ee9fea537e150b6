"""What a rule is."""

from collections.abc import Iterator
from typing import Protocol

from .findings import Match, Severity
from .project import Project


class Rule(Protocol):
    """A rule is a module: its docstring is its manual."""

    __doc__: str | None

    @property
    def CODE(self) -> str: ...

    @property
    def NAME(self) -> str: ...

    @property
    def SEVERITY(self) -> Severity: ...

    @property
    def PASSES(self) -> tuple[str, ...]:
        """Samples that the rule must leave alone."""

    @property
    def MATCHES(self) -> tuple[str, ...]:
        """Samples that the rule must report."""

    def check(self, project: Project) -> Iterator[Match]: ...
