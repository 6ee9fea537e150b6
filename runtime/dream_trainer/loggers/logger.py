"""What all loggers have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from .media import Media


@dataclass(frozen=True, kw_only=True)
class Run:
    """The run that is logged."""

    experiment: str
    project: str
    group: str
    folder: Path
    """Holds everything that the run writes."""

    config: dict[str, Any]
    """As JSON can hold it."""

    start_step: int = 0
    """Above 0 where the run goes on."""


@dataclass(frozen=True)
class Histogram:
    """How values are spread: `counts[i]` of them between `edges[i]` and `edges[i + 1]`."""

    counts: list[float]
    edges: list[float]


class Logger:
    """Takes the record of a run, on global rank 0 alone. What it has no use for does nothing."""

    name: ClassVar[str] = ""
    """As warnings call it."""

    takes_media: ClassVar[bool] = False

    def start(self, run: Run) -> None:
        """Called once the run is set up and has been restored."""

    def event(self, event: str, **fields: Any) -> None:
        """Something happened: "start", "resume", "end", "interrupt"."""

    def log(self, step: int, epoch: int, values: Mapping[str, float]) -> None:
        """Values of one optimizer step or validation. A run that goes on may repeat steps."""

    def show(self, step: int, name: str, items: Sequence[Media]) -> None:
        """Pictures, sound, text or tables."""

    def spread(self, step: int, histograms: Mapping[str, Histogram]) -> None:
        """How the values of tensors are spread."""

    def close(self, exit_code: int, goes_on: bool = False) -> None:
        """The run ends with that code; `goes_on`: it was stopped, to be resumed later."""
