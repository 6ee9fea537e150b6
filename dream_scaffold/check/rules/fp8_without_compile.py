"""A configuration trains in FP8 and does not compile.

`Fp8Quantization` turns each weight and input into FP8 on every forward. The compiler fuses that
into its neighbours; without it every conversion is a kernel of its own that reads and writes
the whole tensor, and the run is slower than plain bfloat16. The runtime says so once, after
the job has waited for its machines.

Bad:

    DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(compile_model=False),
        callbacks=[Fp8Quantization()],
    )

Good:

    DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(),
        callbacks=[Fp8Quantization()],
    )

How to fix: set `compile_model=True` and define `apply_compile`, or leave FP8 out. Emulation
(`Fp8Quantization(emulate=True)`), which is slow anyway, is not reported. See docs/callbacks.md.
"""

from collections.abc import Iterator
from typing import TypeGuard

from ..facts import (
    Call,
    Configuration,
    Constant,
    Display,
    Match,
    Place,
    Project,
    Severity,
    Term,
)

CODE = "DT116"
NAME = "fp8-without-compile"
SEVERITY: Severity = "warning"

PASSES = (
    """
    from dream_trainer.callbacks import Fp8Quantization

    def config():
        return DreamTrainerConfig(
            device_parameters=DeviceParameters.FSDP(), callbacks=[Fp8Quantization()]
        )
    """,
    """
    from dream_trainer.callbacks import Fp8Quantization

    def config():
        return DreamTrainerConfig(
            device_parameters=DeviceParameters.FSDP(compile_model=False),
            callbacks=[Fp8Quantization(emulate=True)],
        )
    """,
    """
    from dream_trainer.callbacks import Fp8Quantization

    def config():
        made = DreamTrainerConfig(
            device_parameters=DeviceParameters.FSDP(compile_model=False),
            callbacks=[Fp8Quantization()],
        )
        made.callbacks = []
        return made
    """,
    """
    from dream_trainer.callbacks import Fp8Quantization

    def fast():
        return DreamTrainerConfig(
            device_parameters=DeviceParameters.FSDP(), callbacks=[Fp8Quantization()]
        )

    def plain():
        return DreamTrainerConfig(
            device_parameters=DeviceParameters.FSDP(compile_model=False)
        )
    """,
)

MATCHES = (
    """
    from dream_trainer.callbacks import Fp8Quantization

    def config():
        return DreamTrainerConfig(
            device_parameters=DeviceParameters.FSDP(compile_model=False),
            callbacks=[Fp8Quantization(exclude=["head"])],
        )
    """,
    """
    from dream_trainer import callbacks as known

    def config():
        more = [known.Fp8Quantization()]
        return DreamTrainerConfig(
            device_parameters=DeviceParameters.FSDP(compile_model=False), extra_callbacks=more
        )

    if __name__ == "__main__":
        cli(lambda config: Complete(config).fit(), {"config": config})
    """,
    """
    from dream_trainer.callbacks import Fp8Quantization

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(compile_model=False),
        callbacks=[Fp8Quantization()],
    )
    """,
)

FIELDS = ("callbacks", "extra_callbacks")


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        for config in trainer.configs:
            if config.value("device_parameters.compile_model") is False:
                for call in _quantizations(project, config):
                    yield Match(
                        call.place,
                        f"{config.name} does not compile: FP8 is then slower than bfloat16.",
                        "Set compile_model=True, or leave Fp8Quantization out.",
                        config=config.name,
                    )


def _quantizations(project: Project, config: Configuration) -> Iterator[Call]:
    """Where a configuration takes the callback."""
    for name in FIELDS:
        setting = config.settings.get(name)
        if setting is None or not setting.is_explicit or setting.value == ():
            continue
        for trace in project.traces:
            for _, call in trace.calls():
                given = call.keywords.get(name)
                if isinstance(given, Display) and _covers(call, setting.place):
                    yield from (item for item in given.items if _quantizes(item))


def _covers(call: Call, place: Place) -> bool:
    """Whether a place, that of a keyword, lies within a call."""
    path, line, column, end_line, end_column = call.place
    begins, ends = (place.line, place.column), (place.end_line, place.end_column)
    return path == place.path and (line, column) <= begins and ends <= (end_line, end_column)


def _quantizes(item: Term) -> TypeGuard[Call]:
    if not isinstance(item, Call) or item.last != "Fp8Quantization" or item.is_open:
        return False
    emulates = item.argument(2, "emulate")
    return emulates is None or (isinstance(emulates, Constant) and not emulates.value)
