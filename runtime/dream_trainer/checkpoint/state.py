"""A trainer's state as DCP reads and writes it: flat, under names that no mesh changes.

model.layers.0.weight                                  what `model_state_dict` returns
trainer.optimizers.optimizer.model.layers.0.weight.exp_avg
trainer.callbacks.EMACallback....                      what callbacks return
trainer.shared                                         the same on every rank
trainer.ranks.3                                        what rank 3 alone has
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict import set_model_state_dict
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from ..callbacks.callback import Callback, RankZeroCallback
from ..configs import RunError
from ..lifecycle import each_stage, named_parts

if TYPE_CHECKING:
    from ..trainer import BaseTrainer, DreamTrainer

OWN = "trainer."
"""What the keys of everything but models begin with."""

OPTIMIZERS = f"{OWN}optimizers"
CALLBACKS = f"{OWN}callbacks"
SHARED = f"{OWN}shared"


def rank_key(rank: int) -> str:
    return f"{OWN}ranks.{rank}"


def flattened(value: Any, name: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dotted names."""
    if not isinstance(value, Mapping):
        return {name: value}
    prefix = f"{name}." if name else ""
    flat: dict[str, Any] = {}
    for key, item in value.items():
        flat |= flattened(item, f"{prefix}{key}")
    return flat


def model_state(trainer: "BaseTrainer") -> dict[str, Any]:
    """What `model_state_dict` returns, over all stages of this rank; it shares their memory."""
    state: dict[str, Any] = {}
    for _ in each_stage(trainer):
        found = flattened(trainer.model_state_dict())
        if wrong := [key for key in found if f"{key}.".startswith(OWN)]:
            raise RunError(
                f"model_state_dict returned {wrong[0]!r}, but {OWN!r} begins the runtime's own "
                "keys. Call it otherwise."
            )
        state |= found
    return state


def collect(trainer: "DreamTrainer") -> dict[str, Any]:
    """Everything that a checkpoint holds, as this rank has it; tensors share their memory."""
    state = model_state(trainer) | optimizer_state(trainer)
    for name, callback in named_callbacks(trainer).items():
        state |= {f"{CALLBACKS}.{name}.{k}": v for k, v in callback.state_dict().items()}
    if trainer.world.is_rank_zero:
        names = {id(optimizer): name for name, optimizer in trainer.optimizers.items()}
        state[SHARED] = {
            "optimizers": {name: settings(o) for name, o in trainer.optimizers.items()},
            "kinds": kinds(trainer),
            "schedulers": {
                names[id(o)]: scheduler.state_dict() for o, scheduler in trainer.schedulers.items()
            },
            "batch_size": getattr(trainer.train_loader, "batch_size", None),
            "seed": trainer.config.seed,
        }
    position = trainer.position if trainer.reader is None else trainer.reader.snapshot()
    state[rank_key(trainer.world.rank)] = {
        "random": vars(trainer.random_before_validation or trainer.random_state()),
        "position": position.as_dict(),
    }
    return state


def named_callbacks(trainer: "DreamTrainer") -> dict[str, Callback]:
    """The callbacks that have a state on this rank, each under its class's name."""
    named: dict[str, Callback] = {}
    for callback in trainer.callbacks:
        if type(callback).state_dict is Callback.state_dict:
            continue
        if isinstance(callback, RankZeroCallback) and not trainer.world.is_rank_zero:
            continue
        name = type(callback).__name__
        count = sum(other.partition("#")[0] == name for other in named)
        named[f"{name}#{count + 1}" if count else name] = callback
    return named


def optimizer_state(trainer: "BaseTrainer") -> dict[str, Any]:
    """The state of every parameter of every optimizer, under the parameter's name."""
    return {
        f"{OPTIMIZERS}.{name}.{trainer.parameter_names[id(parameter)]}.{key}": value
        for name, optimizer in trainer.optimizers.items()
        for parameter, values in optimizer.state.items()
        for key, value in values.items()
    }


def kinds(trainer: "BaseTrainer") -> dict[str, str]:
    """The class of every optimizer, and of the schedule that it has."""
    found = {name: type(optimizer).__name__ for name, optimizer in trainer.optimizers.items()}
    names = {id(optimizer): name for name, optimizer in trainer.optimizers.items()}
    return found | {
        f"the schedule of {names[id(optimizer)]}": type(scheduler).__name__
        for optimizer, scheduler in trainer.schedulers.items()
    }


def settings(optimizer: Optimizer) -> list[dict[str, Any]]:
    """What an optimizer knows of each parameter group besides the parameters."""
    return [
        {key: value for key, value in group.items() if key != "params"}
        for group in optimizer.param_groups
    ]


def optimizer_template(trainer: "BaseTrainer", metadata: Metadata) -> dict[str, Any]:
    """Memory for the optimizer state that a checkpoint holds of this rank's parameters.

    A new optimizer has no state yet, so that nothing could be read into it.
    """
    held = by_owner(key for key in metadata.state_dict_metadata if key.startswith(OPTIMIZERS))
    return {
        f"{owner}.{key}": _memory(f"{owner}.{key}", parameter, metadata)
        for name, optimizer in trainer.optimizers.items()
        for group in optimizer.param_groups
        for parameter in group["params"]
        for owner in (f"{OPTIMIZERS}.{name}.{trainer.parameter_names[id(parameter)]}",)
        for key in held.get(owner, ())
    }


def by_owner(keys: Iterable[str]) -> dict[str, list[str]]:
    """The last parts of dotted names, by what comes before them."""
    found: dict[str, list[str]] = {}
    for key in keys:
        owner, _, name = key.rpartition(".")
        found.setdefault(owner, []).append(name)
    return found


def _memory(key: str, parameter: Tensor, metadata: Metadata) -> Any:
    """A place for one value of a parameter's optimizer state."""
    saved = metadata.state_dict_metadata[key]
    if not isinstance(saved, TensorStorageMetadata):
        return None
    if saved.size == parameter.shape:
        return torch.empty_like(parameter, dtype=saved.properties.dtype, requires_grad=False)
    if isinstance(parameter, DTensor) and saved.size.numel() > 1:
        raise RunError(
            f"{key} has shape {tuple(saved.size)} for a sharded parameter of shape "
            f"{tuple(parameter.shape)}: how to share it out is not known. Start anew with "
            "init_from."
        )
    return torch.empty(saved.size, dtype=saved.properties.dtype, device=parameter.device)


def load_optimizers(
    trainer: "BaseTrainer", state: Mapping[str, Any], saved: Mapping[str, list[dict[str, Any]]]
) -> None:
    """Give the optimizers what was read of their state, and their groups' settings."""
    held = by_owner(state)
    for name, optimizer in trainer.optimizers.items():
        packed = optimizer.state_dict()
        groups = packed["param_groups"]
        if len(saved[name]) != len(groups):
            raise RunError(
                f"{name} has {len(groups)} parameter groups, its checkpoint {len(saved[name])}. "
                "Build the same groups, or start anew with init_from."
            )
        packed["state"] = {}
        for group, own, values in zip(groups, optimizer.param_groups, saved[name], strict=True):
            group.update(values)
            for index, parameter in zip(group["params"], own["params"], strict=True):
                owner = f"{OPTIMIZERS}.{name}.{trainer.parameter_names[id(parameter)]}"
                if owner in held:
                    keys = held[owner]
                    packed["state"][index] = {key: state[f"{owner}.{key}"] for key in keys}
        optimizer.load_state_dict(packed)


def load_models(trainer: "BaseTrainer", state: Mapping[str, Any]) -> None:
    """Give the models what was not read into their own memory.

    Raises `RunError` where it cannot reach them.
    """
    memory = {
        tensor.untyped_storage().data_ptr()
        for _, model in named_parts(trainer)
        for tensor in map(_local, (*model.parameters(), *model.buffers()))
    }
    for _ in each_stage(trainer):
        models = trainer.named_models()
        for name, value in trainer.model_state_dict().items():
            own = flattened(value, name)
            apart = [
                key
                for key, tensor in own.items()
                if not isinstance(tensor, Tensor)
                or _local(tensor).untyped_storage().data_ptr() not in memory
            ]
            if not apart:
                continue
            if name not in models:
                raise RunError(
                    f"model_state_dict returned {apart[0]!r}, a copy that belongs to no model "
                    f"called {name!r}: it cannot be loaded. Return the model's own tensors."
                )
            part = {key.removeprefix(f"{name}."): state[key] for key in own}
            set_model_state_dict(models[name], part)


def _local(tensor: Tensor) -> Tensor:
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor
