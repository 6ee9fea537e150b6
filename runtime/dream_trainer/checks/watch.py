"""What is watched in every training step, where the configuration asks for it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from ..trainer import BaseTrainer

Step = Callable[[Any, int], dict[str, Any]]


def watched(trainer: "BaseTrainer", step: Step) -> Step:
    """`step` as `detect_anomaly` and `warn_on_sync` ask for; `step` itself where neither does.

    A NaN in a gradient then raises with the name of its operation, after a warning with the
    line of the forward; and each wait of the host for a CUDA device is warned of.
    """
    parameters, device = trainer.config.training_parameters, trainer.world.device.type
    if parameters.detect_anomaly:
        step = _within_anomaly_detection(step)
    if not parameters.warn_on_sync:
        return step
    if device == "cuda":
        return _warns_of_syncs()(step)
    if trainer.global_step == trainer.start_step and trainer.world.is_rank_zero:
        print(f"warn_on_sync=True has no effect on {device}: it needs CUDA.", flush=True)
    return step


def _within_anomaly_detection(step: Step) -> Step:
    def run(batch: Any, batch_idx: int) -> dict[str, Any]:
        with torch.autograd.set_detect_anomaly(True):
            return step(batch, batch_idx)

    return run


@contextmanager
def _warns_of_syncs() -> Iterator[None]:
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)
