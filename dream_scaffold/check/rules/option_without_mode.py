"""An option is set whose mode is off, so that it does nothing.

`loss_parallel` shards the loss over tensor-parallel ranks, `cpu_offload` is done by
`fully_shard`, a rotation belongs to context parallelism, micro-batches to a pipeline, a memory
budget to the compiler. Where the mode is off the option is read by nobody, and a run that
was to save memory or time does not.

Bad:

    DeviceParameters.DDP(cpu_offload=True)
    DeviceParameters.FSDP(pipeline_microbatches=8)

Good:

    DeviceParameters.FSDP(cpu_offload=True)
    DeviceParameters.FSDP(pipeline_parallel=2, pipeline_microbatches=8)

How to fix: turn the mode on, or leave the option out. An option that several configurations
share is not reported if one of them has the mode. See docs/parallelism.md.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ..facts import Configuration, Match, Place, Project, Setting, Severity

CODE = "DT110"
NAME = "option-without-mode"
SEVERITY: Severity = "warning"


class Option(NamedTuple):
    """A field, what it holds where it asks for nothing, and what it needs one of."""

    name: str
    idle: tuple[object, ...]
    modes: tuple[str, ...]
    mode: str
    remedy: str


OPTIONS = (
    Option("loss_parallel", (False,), ("tensor_parallel",), "tensor parallelism", "wide"),
    Option(
        "async_tensor_parallel",
        (False, None),
        ("tensor_parallel",),
        "tensor parallelism",
        "wide",
    ),
    Option(
        "cpu_offload",
        (False,),
        ("dp_shard", "context_parallel", "force_fsdp"),
        "FSDP",
        "Use DeviceParameters.FSDP() or HSDP()",
    ),
    Option(
        "context_parallel_rotate_method",
        ("allgather",),
        ("context_parallel",),
        "context parallelism",
        "wide",
    ),
    Option("pipeline_schedule", ("1F1B",), ("pipeline_parallel",), "a pipeline", "wide"),
    Option("pipeline_microbatches", (None,), ("pipeline_parallel",), "a pipeline", "wide"),
    Option(
        "activation_memory_budget",
        (1, 1.0),
        ("compile_model",),
        "compilation",
        "Set compile_model=True",
    ),
    Option(
        "compiled_autograd", (False,), ("compile_model",), "compilation", "Set compile_model=True"
    ),
)

PREFIX = "device_parameters."

PASSES = (
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(
            tensor_parallel=2, loss_parallel=True, cpu_offload=True
        )
    )
    """,
    """
    config = DreamTrainerConfig(device_parameters=DeviceParameters.SINGLE_DEVICE())
    """,
    """
    def make(**degrees):
        return DreamTrainerConfig(
            device_parameters=DeviceParameters.FSDP(loss_parallel=True, **degrees)
        )

    def narrow():
        return make()

    def wide():
        return make(tensor_parallel=2)
    """,
    """
    # dream check --world-size 1
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(cpu_offload=True, compile_model=False)
    )
    """,
)

MATCHES = (
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(loss_parallel=True)
    )
    """,
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.DDP(cpu_offload=True)
    )
    """,
    """
    def config():
        made = DreamTrainerConfig(device_parameters=DeviceParameters.FSDP(compile_model=False))
        made.device_parameters.activation_memory_budget = 0.5
        return made
    """,
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(pipeline_microbatches=8)
    )
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        for option in OPTIONS:
            idle: list[tuple[Configuration, Setting]] = []
            served: set[Place] = set()
            for config in trainer.configs:
                setting = config.settings.get(PREFIX + option.name)
                if setting is None or not setting.is_known or not setting.is_explicit:
                    continue
                if setting.value in option.idle:
                    continue
                if all(_is_off(config, mode) for mode in option.modes):
                    idle.append((config, setting))
                else:
                    served.add(setting.place)
            for config, setting in idle:
                if setting.place not in served:
                    yield _match(option, config, setting)


def _is_off(config: Configuration, mode: str) -> bool:
    value = config.value(PREFIX + mode)
    return value is False or (value == 1 and value is not True)


def _match(option: Option, config: Configuration, setting: Setting) -> Match:
    remedy = option.remedy
    if remedy == "wide":
        remedy = f"Set {option.modes[0]} to 2 or more"
    value = setting.value
    shown = f'"{value}"' if isinstance(value, str) else repr(value)
    return Match(
        setting.place,
        f"{option.name}={shown} does nothing without {option.mode}.",
        f"{remedy}, or leave {option.name} out.",
        config=config.name,
    )
