"""The learning rate in the log."""

from typing import TYPE_CHECKING

from .callback import Callback

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from ..trainer import DreamTrainer


class LRLoggerCallback(Callback):
    """Adds every group's learning rate to the steps that are logged.

    Motive: a schedule that does something else than was meant shows in its curve, and nowhere
    else. The value is the one that the step was made with: `lr/<optimizer>`, or of several
    groups `lr/<optimizer>/<group>`, a group's "name" or its number.
    """

    def pre_optimizer_step(self, trainer: "DreamTrainer", optimizer: "Optimizer") -> None:
        if not trainer.is_logging_step:
            return
        name = next((n for n, o in trainer.optimizers.items() if o is optimizer), "")
        name = f"lr/{name or type(optimizer).__name__}"
        groups = optimizer.param_groups
        if len(groups) == 1:
            trainer.also_log({name: groups[0]["lr"]})
            return
        trainer.also_log(
            {f"{name}/{group.get('name', i)}": group["lr"] for i, group in enumerate(groups)}
        )
