"""A rank's state handed to a rank of the same place on another mesh, from memory to memory."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from .restore import COUNTERS
from .state import (
    OPTIMIZERS,
    load_optimizers,
    model_state,
    named_callbacks,
    optimizer_state,
    settings,
)

if TYPE_CHECKING:
    from ..trainer import DreamTrainer


def packed_state(trainer: "DreamTrainer") -> dict[str, Any]:
    """This rank's share of all that is trained, and where the loop is; it shares memory."""
    return {
        "models": _packed(model_state(trainer)),
        "optimizers": _packed(optimizer_state(trainer)),
        "settings": {name: settings(o) for name, o in trainer.optimizers.items()},
        "schedulers": [scheduler.state_dict() for scheduler in trainer.schedulers.values()],
        "callbacks": {
            name: _packed(callback.state_dict())
            for name, callback in named_callbacks(trainer).items()
        },
        "counters": {name: getattr(trainer, name) for name in COUNTERS},
        # The batch under way has not been trained on.
        "batches": trainer.position.batches
        if trainer.reader is None
        else trainer.reader.given - 1,
    }


@torch.no_grad()
def unpack_state(trainer: "DreamTrainer", received: dict[str, Any]) -> None:
    """Take up what `packed_state` gave on the same mesh."""
    for key, tensor in model_state(trainer).items():
        _fill(tensor, received["models"][key])
    parameters = {
        f"{OPTIMIZERS}.{name}.{trainer.parameter_names[id(parameter)]}": parameter
        for name, optimizer in trainer.optimizers.items()
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    of_optimizers = {}
    for key, (is_sharded, value) in received["optimizers"].items():
        of_optimizers[key] = value
        if is_sharded:
            parameter = parameters[key.rpartition(".")[0]]
            like = torch.empty_like(parameter, dtype=value.dtype, requires_grad=False)
            of_optimizers[key] = _fill(like, (is_sharded, value))
    load_optimizers(trainer, of_optimizers, received["settings"])
    for scheduler, values in zip(trainer.schedulers.values(), received["schedulers"], strict=True):
        scheduler.load_state_dict(values)
    for name, callback in named_callbacks(trainer).items():
        own, theirs = callback.state_dict(), received["callbacks"][name]
        callback.load_state_dict({key: _fill(own.get(key), v) for key, v in theirs.items()})
    for name, value in received["counters"].items():
        setattr(trainer, name, value)


def _packed(values: dict[str, Any]) -> dict[str, tuple[bool, Any]]:
    """Each value as this rank has it, and whether it is a part of a sharded tensor."""
    return {key: (isinstance(value, DTensor), _local(value)) for key, value in values.items()}


def _fill(own: Any, packed: tuple[bool, Any]) -> Any:
    """`own`, filled, where it is a tensor of the right shape, else what came."""
    value = packed[1]
    if isinstance(own, Tensor) and isinstance(value, Tensor) and _local(own).shape == value.shape:
        _local(own).copy_(value)
        return own
    return value


def _local(value: Any) -> Any:
    return value._local_tensor if isinstance(value, DTensor) else value
