"""Options of the training script that change the configuration before a run."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ..configs import CheckpointParameters

C = TypeVar("C")
Apply = Callable[[Any, Any], None]


@dataclass(frozen=True)
class Modifier:
    """One option: `--flag` (bool) or `--flag VALUE`, and what it does to a configuration."""

    flag: str
    type: type
    help: str
    apply: Apply

    @property
    def name(self) -> str:
        """As a keyword: `--no-compile` is `no_compile`."""
        return self.flag.removeprefix("--").replace("-", "_")


MODIFIERS: dict[str, Modifier] = {}
"""Flag -> modifier, in the order in which they are applied."""


def register_modifier(flag: str, *, type: type = bool, help: str = "") -> Callable[[Apply], Apply]:
    """Add an option to `cli()`. The decorated function changes the configuration in place.

    It is called with (config, value) where the option is given, a bool option with True:

        @register_modifier("--lr", type=float, help="learning rate")
        def learning_rate(config, value):
            config.learning_rate = value
    """
    if not flag.startswith("--") or not flag.removeprefix("--").replace("-", "_").isidentifier():
        raise ValueError(f"{flag!r} is not a long option. Write it as --some-name.")

    def register(apply: Apply) -> Apply:
        text = help or (apply.__doc__ or "").partition("\n")[0]
        MODIFIERS[flag] = Modifier(flag, type, text, apply)
        return apply

    return register


def set_device(config: Any, **changes: Any) -> None:
    """Replace fields of `config.device_parameters`; contradictions raise `ConfigError`."""
    config.device_parameters = dataclasses.replace(config.device_parameters, **changes)


@register_modifier("--single-device")
def single_device(config: Any, _: bool) -> None:
    """One process on one device, whatever the configuration's mesh."""
    degrees = dict.fromkeys(
        (
            "pipeline_parallel",
            "dp_replicate",
            "dp_shard",
            "context_parallel",
            "tensor_parallel",
        ),
        1,
    )
    set_device(config, **degrees, force_ddp=False, force_fsdp=False)


@register_modifier("--force-ddp")
def force_ddp(config: Any, _: bool) -> None:
    """Replicate over all data-parallel ranks instead of sharding."""
    set_device(config, force_ddp=True)


@register_modifier("--force-fsdp")
def force_fsdp(config: Any, _: bool) -> None:
    """Shard over all data-parallel ranks instead of replicating."""
    set_device(config, force_fsdp=True)


@register_modifier("--no-compile")
def no_compile(config: Any, _: bool) -> None:
    """Do not compile; async tensor parallelism, a compiler pass, goes with it."""
    if config.device_parameters.async_tensor_parallel:
        print("--no-compile: async tensor parallelism is off as well")
    set_device(config, compile_model=False, async_tensor_parallel=None)


@register_modifier("--ckpt-acts")
def ckpt_acts(config: Any, _: bool) -> None:
    """Recompute activations in the backward pass, to save memory."""
    set_device(config, checkpoint_activations=True)


@register_modifier("--cpu-offload")
def cpu_offload(config: Any, _: bool) -> None:
    """Keep sharded parameters and optimizer state in host memory."""
    set_device(config, cpu_offload=True)


@register_modifier("--grad-accum-steps", type=int)
def grad_accum_steps(config: Any, steps: int) -> None:
    """Batches per optimizer step."""
    config.training_parameters = dataclasses.replace(
        config.training_parameters, gradient_accumulation_steps=steps
    )


@register_modifier("--no-sanity")
def no_sanity(config: Any, _: bool) -> None:
    """No validation before training."""
    config.training_parameters = dataclasses.replace(
        config.training_parameters, num_sanity_val_steps=0
    )


@register_modifier("--debug-collectives", type=int)
def debug_collectives(config: Any, steps: int) -> None:
    """For N steps, name the rank that calls other modules than the rest, before it hangs."""
    config.training_parameters = dataclasses.replace(
        config.training_parameters, debug_collectives=steps
    )


@register_modifier("--no-checks")
def no_checks(config: Any, _: bool) -> None:
    """No checks of mesh, batches and gradients before and in the first step."""
    config.training_parameters = dataclasses.replace(
        config.training_parameters, startup_checks=False
    )


def set_checkpoints(config: Any, **changes: Any) -> None:
    """Replace fields of `config.checkpoint_parameters`; without any, nothing else is saved."""
    parameters = config.checkpoint_parameters or CheckpointParameters(enable=False)
    config.checkpoint_parameters = dataclasses.replace(parameters, **changes)


@register_modifier("--resume", type=str)
def resume(config: Any, experiment: str) -> None:
    """Go on with the run of that name, from its newest checkpoint."""
    set_checkpoints(config, resume=experiment)


@register_modifier("--init-from", type=str)
def init_from(config: Any, source: str) -> None:
    """Start with the weights of a checkpoint, a run or a file, from step 0."""
    set_checkpoints(config, init_from=source)


@register_modifier("--no-ckpt")
def no_ckpt(config: Any, _: bool) -> None:
    """Save no checkpoint."""
    set_checkpoints(config, enable=False)


@register_modifier("--no-log")
def no_log(config: Any, _: bool) -> None:
    """Write no log file."""
    config.logging_parameters = dataclasses.replace(config.logging_parameters, enabled=False)
