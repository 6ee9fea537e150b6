"""How far a run has come, on a terminal."""

import sys
from typing import TYPE_CHECKING, Any

from .callback import RankZeroCallback

if TYPE_CHECKING:
    from ..trainer import DreamTrainer


class ProgressBar(RankZeroCallback):
    """A bar of optimizer steps with rate and remaining time.

    Motive: a person at a terminal wants to see that it moves. Where the output is no
    terminal there is no bar: the log's lines tell the same.
    """

    def __init__(self) -> None:
        self.bar: Any = None

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
            transient=True,
        )
        self.task = self.bar.add_task(
            "training", total=trainer.expected_steps, completed=trainer.start_step
        )
        self.bar.start()

    def post_train_step(
        self, trainer: "DreamTrainer", result: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        if self.bar is not None and not trainer.is_accumulating_gradients:
            self.bar.update(self.task, completed=trainer.global_step)

    def pre_validation_epoch(self, trainer: "DreamTrainer") -> None:
        if self.bar is not None:
            self.bar.update(self.task, description="validating")

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
