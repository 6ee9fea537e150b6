"""The learning rate in the log."""

from typing import TYPE_CHECKING

from .callback import Callback

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from ..trainer import DreamTrainer


class LRLoggerCallback(Callback):
    """Adds every group's learning rate to the steps that are logged.

    Motive: a schedule that does something else than was meant shows in its curve, and nowhere
    else. The value is the one that the step was made with: `lr/<optimizer>`, or from where
    groups differ on `lr/<optimizer>/<group>`, a group's "name" or its number.
    """

    def __init__(self) -> None:
        self.apart: set[str] = set()

    def pre_optimizer_step(self, trainer: "DreamTrainer", optimizer: "Optimizer") -> None:
        if not trainer.is_logging_step:
            return
        name = next((n for n, o in trainer.optimizers.items() if o is optimizer), "")
        name = f"lr/{name or type(optimizer).__name__}"
        groups = optimizer.param_groups
        first = groups[0]["lr"]
        # Tensors on a device are not compared: that would wait for it.
        alike = all(isinstance(g["lr"], float) and g["lr"] == first for g in groups)
        if len(groups) == 1 or (alike and name not in self.apart):
            trainer.also_log({name: first})
            return
        self.apart.add(name)
        trainer.also_log(
            {f"{name}/{group.get('name', i)}": group["lr"] for i, group in enumerate(groups)}
        )
