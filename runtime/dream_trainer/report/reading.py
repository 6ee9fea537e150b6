"""What a log says, after everything that happened to it: resumes, restarts, torn lines."""

import json
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf, isfinite, nan
from pathlib import Path
from typing import Any

from ..configs import RunError

LOG = "log.jsonl"
PLACE = ("step", "epoch", "time")
"""What says of a record where it belongs."""


@dataclass
class Series:
    """One value over the steps of a run; NaN where it was not finite."""

    steps: "array[int]" = field(default_factory=lambda: array("q"))
    values: "array[float]" = field(default_factory=lambda: array("d"))

    def add(self, step: int, value: float) -> None:
        """The newest value of a step counts, and what was logged past it does not."""
        self.cut(step - 1)
        self.steps.append(step)
        self.values.append(value)

    def cut(self, step: int) -> None:
        """Forget everything past `step`."""
        while self.steps and self.steps[-1] > step:
            self.steps.pop()
            self.values.pop()

    def thinned(self, most: int) -> list[tuple[int, float | None]]:
        """At most about `most` points: of every stretch the lowest, the highest, and a gap."""
        points = [
            (step, value if isfinite(value) else None)
            for step, value in zip(self.steps, self.values, strict=True)
        ]
        if len(points) <= most:
            return points
        width = -(-len(points) // (most // 3))
        kept: set[int] = {0, len(points) - 1}
        for start in range(0, len(points), width):
            places = range(start, min(start + width, len(points)))
            known = [(value, i) for i in places if (value := points[i][1]) is not None]
            kept |= {min(known)[1], max(known)[1]} if known else set()
            kept |= set([i for i in places if points[i][1] is None][:1])
        return [points[i] for i in sorted(kept)]


@dataclass
class RecordedRun:
    """A run as its log tells it."""

    name: str
    events: list[dict[str, Any]] = field(default_factory=list)
    """"start", "resume", "end" and "interrupt", in order."""

    config: dict[str, Any] = field(default_factory=dict)
    """Of the newest start, flat: path.to.field -> value."""

    axes: dict[str, int] = field(default_factory=dict)
    world_size: int = 1
    series: dict[str, Series] = field(default_factory=dict)
    unreadable: int = 0
    """Lines that are no record."""

    begins: bool = False
    """Whether a start has been read, and nothing after it."""

    def take(self, record: dict[str, Any]) -> None:
        """The next line of the log."""
        event = record.get("event")
        if event is not None:
            self._take_event(str(event), record)
            return
        step = record.get("step")
        if not isinstance(step, int):
            self.unreadable += 1
            return
        if self.begins:  # Begun anew, in the folder of an earlier attempt.
            self._cut(0)
        self.begins = False
        for name, value in record.items():
            if name in PLACE or not (value is None or isinstance(value, (int, float))):
                continue
            self.series.setdefault(name, Series()).add(step, nan if value is None else value)

    def _take_event(self, event: str, record: dict[str, Any]) -> None:
        self.events.append({key: record.get(key) for key in ("event", "time", "step")})
        if event == "start":
            self.begins = True
            self.config = dict(_flat(record.get("config") or {}))
            self.axes = record.get("axes") or {}
            self.world_size = record.get("world_size") or 1
        if event == "resume":
            self.begins = False
            self._cut(record.get("step") or 0)

    def _cut(self, step: int) -> None:
        for series in self.series.values():
            series.cut(step)

    @property
    def last_step(self) -> int:
        return max((s.steps[-1] for s in self.series.values() if s.steps), default=0)


def read_run(place: str, root: str) -> RecordedRun:
    """The run of that name in `root`, or the log or folder that `place` is.

    Raises `RunError` where there is none.
    """
    candidates = [Path(root) / place / LOG, Path(place) / LOG, Path(place)]
    path = next((path for path in candidates if path.is_file()), None)
    if path is None:
        raise RunError(
            f"{place!r} has no log: {candidates[0]} is not there. "
            f"Name a run of {root}/, the folder of one, or a log."
        )
    run = RecordedRun(path.resolve().parent.name if path.name == LOG else path.stem)
    with path.open("rb") as file:
        for line in file:
            try:
                record = json.loads(line)
            except ValueError:
                record = None
            if isinstance(record, dict):
                run.take(record)
            elif line.strip():
                run.unreadable += 1
    return run


def differences(runs: list[RecordedRun]) -> dict[str, list[str]]:
    """Field -> its value in each run as JSON, "" for none, for the fields that differ."""
    names = dict.fromkeys(name for run in runs for name in run.config)
    values = {
        name: [json.dumps(run.config[name]) if name in run.config else "" for run in runs]
        for name in names
    }
    return {
        name: found for name, found in values.items() if any(item != found[0] for item in found)
    }


def _flat(config: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def best(series: Series) -> tuple[float, float]:
    """The lowest and the highest finite value."""
    finite = [value for value in series.values if isfinite(value)]
    return min(finite, default=inf), max(finite, default=-inf)
