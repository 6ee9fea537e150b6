"""What `configure_optimizers` and `configure_schedulers` returned: checked and named."""

from typing import TYPE_CHECKING

from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from .configs import RunError
from .seeding import NamedParts, clean

if TYPE_CHECKING:
    from .trainer import AbstractTrainer


def check_optimizers(trainer: "AbstractTrainer", optimizers: object) -> None:
    """Raise where an optimizer holds tensors that are not its model's parameters."""
    if not isinstance(optimizers, dict):
        raise RunError(
            f"configure_optimizers returned {type(optimizers).__name__}. "
            "Return {self.model: self.optimizer}."
        )
    trained = {id(p) for model in trainer.named_models().values() for p in model.parameters()}
    for optimizer in optimizers.values():
        if not isinstance(optimizer, Optimizer):
            raise RunError(
                f"configure_optimizers returned {type(optimizer).__name__} as an optimizer. "
                "Return {self.model: self.optimizer}."
            )
        held = [p for group in optimizer.param_groups for p in group["params"]]
        own = [p for p in held if id(p) in trained]
        if len(own) < len(held):
            raise RunError(
                f"{type(optimizer).__name__} holds {len(held)} tensors, {len(own)} of them "
                "parameters of this trainer's models: the others would be trained in vain. "
                "Build it in configure_optimizers, over self.model.parameters()."
            )


def name_optimizers(
    trainer: "AbstractTrainer", optimizers: dict[nn.Module, Optimizer]
) -> dict[str, Optimizer]:
    """Every optimizer by its attribute's name, else by its model's."""
    named = trainer.named_optimizers()
    attribute = {id(optimizer): name for name, optimizer in named.items()}
    models = {id(model): name for name, model in trainer.named_models().items()}
    for model, optimizer in optimizers.items():
        if id(optimizer) not in attribute:
            named[models.get(id(model), f"of_{len(named)}")] = optimizer
    return named


def name_parameters(parts: NamedParts) -> dict[int, str]:
    """id -> name in the whole model, the same on every mesh."""
    inner = [
        (root, model.module if isinstance(model, DistributedDataParallel) else model)
        for root, model in parts
    ]
    return {
        id(parameter): clean(name)
        for root, model in inner
        for name, parameter in model.named_parameters(prefix=root)
    }


def checked_schedulers(schedulers: object) -> dict[Optimizer, LRScheduler]:
    """What `configure_schedulers` returned; raises where a scheduler would never advance."""
    if schedulers is None:
        return {}
    if not isinstance(schedulers, dict) or not all(isinstance(k, Optimizer) for k in schedulers):
        raise RunError(
            f"configure_schedulers returned {type(schedulers).__name__} with other keys than "
            "optimizers. Return {self.optimizer: scheduler}."
        )
    for scheduler in schedulers.values():
        if isinstance(scheduler, ReduceLROnPlateau):
            raise RunError(
                "ReduceLROnPlateau waits for a metric, but schedulers advance once per optimizer "
                "step. Use a schedule of steps, such as LambdaLR."
            )
    return schedulers
