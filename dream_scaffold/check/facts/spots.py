"""Where something is written, and how: for the places of findings and the text of fixes."""

from collections.abc import Mapping
from typing import Protocol

from .findings import Place


class Spot(Protocol):
    """A piece of source, looked at only where a finding needs it."""

    @property
    def place(self) -> Place: ...

    @property
    def text(self) -> str:
        """The source as it is written."""


class CallSpot(Spot, Protocol):
    """The source of a call."""

    @property
    def callee(self) -> Spot:
        """What is called: `self.optimizer.step` of `self.optimizer.step()`."""

    @property
    def receiver(self) -> Spot | None:
        """What stands before the last dot of the callee."""

    @property
    def arguments(self) -> tuple[Spot, ...]:
        """Positional arguments."""

    @property
    def keywords(self) -> Mapping[str, Spot]:
        """Keyword -> its value."""

    @property
    def end(self) -> Place:
        """The empty place where one more argument can be written."""

    @property
    def separator(self) -> str:
        """What has to stand before one more argument: "", ", " or " "."""
