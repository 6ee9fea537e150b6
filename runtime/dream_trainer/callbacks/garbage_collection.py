"""Python's garbage collector, at the same step on every rank."""

import gc
from typing import TYPE_CHECKING, Any

from .callback import Callback

if TYPE_CHECKING:
    from ..trainer import DreamTrainer


class GarbageCollectionCallback(Callback):
    """Collects garbage every so many steps on all ranks at once, and never in between.

    Motive: the collector starts by itself wherever a rank has made enough objects, a step
    apart on every rank, and all the others wait for the one that pauses. What set-up made is
    frozen: it is never looked at again. The end of an epoch collects all generations.
    """

    def __init__(self, every_n_steps: int = 100, generation: int = 1) -> None:
        if every_n_steps < 1:
            raise ValueError(
                f"every_n_steps={every_n_steps} would never collect. Use a whole number from 1."
            )
        self.every_n_steps, self.generation = every_n_steps, generation
        self.was_enabled = False

    def pre_fit(self, trainer: "DreamTrainer") -> None:
        self.was_enabled = gc.isenabled()
        gc.disable()
        gc.collect()
        gc.freeze()

    def post_train_step(
        self, trainer: "DreamTrainer", result: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step % self.every_n_steps or trainer.is_accumulating_gradients:
            return
        gc.collect(self.generation)

    def post_epoch(self, trainer: "DreamTrainer") -> None:
        gc.collect()

    def post_fit(self, trainer: "DreamTrainer") -> None:
        self._restore()

    def on_interrupt(self, trainer: "DreamTrainer") -> None:
        self._restore()

    def _restore(self) -> None:
        if self.was_enabled:
            self.was_enabled = False
            gc.unfreeze()
            gc.enable()
