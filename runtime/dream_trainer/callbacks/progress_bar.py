"""How far a run has come, on a terminal."""

import sys
import time
from typing import TYPE_CHECKING, Any

from .callback import RankZeroCallback

if TYPE_CHECKING:
    from ..trainer import DreamTrainer

SECONDS = 0.1
"""Between two changes of the bar."""


class ProgressBar(RankZeroCallback):
    """A bar of optimizer steps: time left, one value, throughput, the share of waiting for data.

    Motive: a person at a terminal wants to see that it moves, and whether the data keep up.
    Where the output is no terminal there is no bar: the log's lines tell the same. `metric` is
    the logged value to show; by default the first that ends in "loss".
    """

    def __init__(self, metric: str | None = None) -> None:
        self.metric = metric
        self.bar: Any = None
        self.updated = 0.0

    def pre_fit(self, trainer: "DreamTrainer") -> None:
        if not sys.stdout.isatty():
            return
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[values]}", markup=False),
            transient=True,
        )
        self.task = self.bar.add_task(
            "training", total=trainer.expected_steps, completed=trainer.start_step, values=""
        )
        self.bar.start()

    def pre_train_epoch(self, trainer: "DreamTrainer") -> None:
        self.began = time.perf_counter()

    def post_train_step(
        self, trainer: "DreamTrainer", result: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        if self.bar is None or trainer.is_accumulating_gradients:
            return
        now = time.perf_counter()
        if now - self.updated > SECONDS:
            self.updated = now
            values = self.values(trainer, now - self.began)
            self.bar.update(self.task, completed=trainer.global_step, values=values)

    def values(self, trainer: "DreamTrainer", seconds: float) -> str:
        """The metric and the throughput as they were last logged, and the wait in this epoch."""
        logged = trainer.logged
        metric = self.metric or next((name for name in logged if name.endswith("loss")), "")
        shown = [f"{metric} {logged[metric]:.4g}"] if metric in logged else []
        rate = logged.get(f"perf/{trainer.item}_per_second")
        if rate is not None:
            shown.append(f"{rate:,.0f} {trainer.item}/s")
        waited = trainer.reader.waited if trainer.reader is not None else 0.0
        return "  ".join([*shown, f"data {waited / max(seconds, 1e-9):.0%}"])

    def pre_validation_epoch(self, trainer: "DreamTrainer") -> None:
        if self.bar is not None:
            self.bar.update(self.task, description="validating", completed=trainer.global_step)

    def post_validation_epoch(self, trainer: "DreamTrainer", result: dict[str, float]) -> None:
        if self.bar is not None:
            self.bar.update(self.task, description="training")

    def post_fit(self, trainer: "DreamTrainer") -> None:
        self._stop()

    def on_interrupt(self, trainer: "DreamTrainer") -> None:
        self._stop()

    def _stop(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None
