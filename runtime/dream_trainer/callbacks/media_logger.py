"""What a validation has to show: pictures, sound, text, tables."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..loggers.media import Media, as_media, write
from .callback import Callback

if TYPE_CHECKING:
    from ..trainer import DreamTrainer

Make = Callable[["DreamTrainer", Any, dict[str, Any]], Mapping[str, Any]]


class MediaLoggerCallback(Callback):
    """Shows what `validation_step` returns under `key`: a dict of names to media.

    Motive: a falling loss does not say what a model makes. Media are text, tensors of pixels,
    `Image`, `Audio` or `Table` of `dream_trainer.loggers`, or lists of them. wandb and
    TensorBoard get them; without either they become files in `runs/<experiment>/media/`.
    Only those of rank 0, and at most `limit` a name and validation, are kept.

    `make(trainer, batch, result)` may return such a dict as well. It is called for the first
    batch of a validation, on every rank, since a sharded model cannot run on one alone.
    """

    def __init__(self, make: Make | None = None, key: str = "media", limit: int = 8) -> None:
        self.make, self.key, self.limit = make, key, limit
        self.kept: dict[str, list[Media]] = {}

    def pre_validation_epoch(self, trainer: "DreamTrainer") -> None:
        self.kept = {}

    def post_validation_step(
        self, trainer: "DreamTrainer", result: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        shown = dict(result.pop(self.key, None) or {})
        if self.make is not None and batch_idx == 0:
            shown |= self.make(trainer, batch, result)
        if not trainer.world.is_rank_zero or not trainer.batch_counts:
            return
        for name, value in shown.items():
            kept = self.kept.setdefault(name, [])
            kept += as_media(value, name)[: self.limit - len(kept)]

    def post_validation_epoch(self, trainer: "DreamTrainer", result: dict[str, float]) -> None:
        parameters = trainer.config.logging_parameters
        kept, self.kept = self.kept, {}
        if trainer.is_sanity_check or not parameters.enabled:
            return
        folder = Path(parameters.root_dir) / trainer.experiment / "media"
        trackers = [logger for logger in trainer.loggers if logger.takes_media]
        for name, items in kept.items():
            try:
                for tracker in trackers:
                    tracker.show(trainer.global_step, name, items)
                for index, item in enumerate(() if trackers else items):
                    write(item, folder / name / f"step-{trainer.global_step:08}-{index}")
            except Exception as error:
                print(f"warning: {name!r} is not shown: {error}", file=sys.stderr, flush=True)
