"""Options of the training script that change the configuration before a run."""

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

from ..configs import CheckpointParameters, ConfigError

Apply = Callable[[Any, Any], None]


@dataclass(frozen=True)
class Modifier:
    """One option: `--flag` (bool) or `--flag VALUE`, and what it does to a configuration."""

    flag: str
    type: Any
    help: str
    variants: dict[type, Apply]
    """Class of configuration -> what to do with it; the nearest class counts."""

    @property
    def name(self) -> str:
        """As a keyword: `--no-compile` is `no_compile`."""
        return self.flag.removeprefix("--").replace("-", "_")

    def apply(self, config: Any, value: Any) -> None:
        """Change `config` in place. Raises `ConfigError` where the option is not for it."""
        for cls in type(config).__mro__:
            if cls in self.variants:
                self.variants[cls](config, value)
                return
        known = " or ".join(cls.__name__ for cls in self.variants)
        raise ConfigError(
            "DT107",
            f"{self.flag} changes {known}, but the configuration is {type(config).__name__}.",
            "Leave it out, or choose another --config.",
        )


MODIFIERS: dict[str, Modifier] = {}
"""Flag -> modifier, in the order in which they are applied."""


def register_modifier(
    flag: str, *, type: Any = None, help: str = "", config: type | None = None
) -> Callable[[Apply], Apply]:
    """Add an option to `cli()`. The decorated function changes the configuration in place.

    It is called with (config, value) where the option is given, a bool option with True:

        @register_modifier("--lr", help="learning rate")
        def learning_rate(config: MyConfig, value: float) -> None:
            config.learning_rate = value

    The annotations say for which class of configuration it is, subclasses included, and of
    which type the value; `config` and `type` say so otherwise, and without either it is a
    bool option for any. One flag may be registered for several classes: the nearest counts.
    """
    if not flag.startswith("--") or not flag.removeprefix("--").replace("-", "_").isidentifier():
        raise ValueError(f"{flag!r} is not a long option. Write it as --some-name.")

    def register(apply: Apply) -> Apply:
        annotated = _annotations(apply)
        kind = type or annotated.get("value") or bool
        text = help or (apply.__doc__ or "").partition("\n")[0]
        variants = MODIFIERS[flag].variants if flag in MODIFIERS else {}
        cls = config or annotated.get("config") or object
        MODIFIERS[flag] = Modifier(flag, kind, text, variants | {cls: apply})
        return apply

    return register


def _annotations(apply: Apply) -> dict[str, Any]:
    """What is written at the two parameters of a modifier, where it can be read."""
    try:
        hints = get_type_hints(apply)
    except (NameError, TypeError):
        return {}
    names = list(inspect.signature(apply).parameters)[:2]
    found = {key: hints.get(name) for key, name in zip(("config", "value"), names, strict=False)}
    return {key: None if hint is Any else hint for key, hint in found.items()}


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


@register_modifier("--no-fp8")
def no_fp8(config: Any, _: bool) -> None:
    """Linear layers stay in the precision of the rest."""
    if config.callbacks is not None:
        config.callbacks = without(config.callbacks, "Fp8Quantization")
    config.extra_callbacks = without(config.extra_callbacks, "Fp8Quantization")


def without(callbacks: Sequence[Any], name: str) -> list[Any]:
    """`callbacks` but for those of the class called `name`, and of what derives from it."""
    return [c for c in callbacks if all(cls.__name__ != name for cls in type(c).__mro__)]


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


@register_modifier("--detect-anomaly")
def detect_anomaly(config: Any, _: bool) -> None:
    """End the run at a NaN in a gradient, with the operation that made it. Slow."""
    config.training_parameters = dataclasses.replace(
        config.training_parameters, detect_anomaly=True
    )


@register_modifier("--warn-on-sync")
def warn_on_sync(config: Any, _: bool) -> None:
    """Warn wherever a training step makes the host wait for its CUDA device."""
    config.training_parameters = dataclasses.replace(config.training_parameters, warn_on_sync=True)


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
