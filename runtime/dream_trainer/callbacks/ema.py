"""A running average of the weights, which often validates better than the weights."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from ..checkpoint.state import model_state
from ..configs.errors import is_count, refuse_unless
from ..lifecycle import named_parts
from .callback import Callback

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from ..trainer import DreamTrainer


class EMACallback(Callback):
    """Keeps `average = decay * average + (1 - decay) * weights` of every trained parameter.

    Motive: a copy of a sharded model is refused, one made before sharding does not fit, and
    what rank 0 saves of its own shards is a fraction of the model. Here each rank averages in
    place what it holds, after the optimizer steps of a window; checkpoints hold the averages
    under the parameters' names and give them to any mesh.

    The average begins as the weights after step `start_step` + 1 (or the next of the steps
    `every_n_steps`), is of float32 at least, and takes the place of the weights in validation
    unless `validate=False`. Parameters that are frozen at set-up have none. A swap holds one
    more copy of this rank's parameters.
    """

    def __init__(
        self,
        decay: float = 0.999,
        every_n_steps: int = 1,
        start_step: int = 0,
        validate: bool = True,
    ) -> None:
        is_share = isinstance(decay, (int, float)) and 0 <= decay < 1
        refuse_unless(is_share, "decay", decay, "a number from 0 to below 1")
        refuse_unless(
            is_count(every_n_steps, 1), "every_n_steps", every_n_steps, "a whole number from 1"
        )
        refuse_unless(is_count(start_step, 0), "start_step", start_step, "a whole number from 0")
        self.decay, self.every_n_steps, self.start_step = decay, every_n_steps, start_step
        self.validate = validate
        self.updates = 0
        """How many steps the average has seen; 0: there is none yet."""
        self.has_stepped = False

    def post_setup(self, trainer: "DreamTrainer") -> None:
        # What optimizers hold stays sharded; a module's parameters are whole now and then.
        self.trained = {
            trainer.parameter_names[id(parameter)]: parameter
            for optimizer in trainer.optimizers.values()
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.requires_grad
        }
        self.averages = {
            name: torch.zeros_like(
                parameter,
                dtype=torch.promote_types(parameter.dtype, torch.float32),
                requires_grad=False,
            )
            for name, parameter in self.trained.items()
        }
        self.local_averages = _local(self.averages.values())

    def post_optimizer_step(self, trainer: "DreamTrainer", optimizer: "Optimizer") -> None:
        self.has_stepped = True

    @torch.no_grad()
    def post_train_step(
        self, trainer: "DreamTrainer", result: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        step = trainer.global_step
        if not self.has_stepped:  # It accumulates.
            return
        self.has_stepped = False
        if step <= self.start_step or step % self.every_n_steps:
            return
        averages, weights = self.local_averages, _local(self.trained.values())
        if not self.updates:
            torch._foreach_copy_(averages, weights)
        elif all(a.dtype == w.dtype for a, w in zip(averages, weights, strict=True)):
            torch._foreach_lerp_(averages, weights, 1 - self.decay)
        else:  # `lerp_` takes no two dtypes, and a copy of the weights would cost memory.
            torch._foreach_mul_(averages, self.decay)
            torch._foreach_add_(averages, weights, alpha=1 - self.decay)
        self.updates += 1

    def validation_context(self, trainer: "DreamTrainer") -> AbstractContextManager[Any]:
        return self.swapped(trainer) if self.validate and self.updates else nullcontext()

    @contextmanager
    def swapped(self, trainer: "DreamTrainer") -> Iterator[None]:
        """Within, the models hold the averages. Raises `RuntimeError` where there are none yet.

        Not for training: what an optimizer steps in there is lost.
        """
        if not self.updates:
            raise RuntimeError(
                f"There is no average at step {trainer.global_step}: it begins after step "
                f"{self.start_step}. Swap later, or lower start_step."
            )
        with torch.no_grad():
            kept = [weight.clone() for weight in _local(self.trained.values())]
        try:
            self._fill(trainer, self.local_averages)
            yield
        finally:
            self._fill(trainer, kept)

    @torch.no_grad()
    def _fill(self, trainer: "DreamTrainer", values: list[Tensor]) -> None:
        # What an earlier forward has gathered would be used again, in place of the new values.
        for _, model in named_parts(trainer):
            for module in model.modules():
                if isinstance(module, FSDPModule):
                    module.reshard()
        torch._foreach_copy_(_local(self.trained.values()), values)

    def ema_state_dict(self, trainer: "DreamTrainer") -> dict[str, Any]:
        """What `model_state_dict` returns, with the averages for the weights they are of.

        Flat, under names with the model's attribute, sharded where the model is. It shares
        memory with what is trained: save it at once, or clone it.
        """
        return model_state(trainer) | (self.averages if self.updates else {})

    def state_dict(self) -> dict[str, Any]:
        return {**self.averages, "updates": self.updates}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.updates = state["updates"]
        for name, average in self.averages.items():
            # A parameter that is trained only now begins with what it is.
            value = state.get(name, self.trained[name])
            if value is not average:
                average.copy_(value)


def _local(tensors: Iterable[Tensor]) -> list[Tensor]:
    """This rank's parts. Not to be kept of parameters: `fully_shard` may replace them."""
    return [t._local_tensor if isinstance(t, DTensor) else t for t in tensors]
