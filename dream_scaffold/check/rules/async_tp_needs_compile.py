"""Asynchronous tensor parallelism is asked for while compilation is off.

It is a pass of the compiler that overlaps the collectives of tensor parallelism with
compute. Without the compiler nothing overlaps, and the run would be slower than it
says it is.

Bad:

    DeviceParameters.FSDP(
        tensor_parallel=2, compile_model=False, async_tensor_parallel=True
    )

Good:

    DeviceParameters.FSDP(tensor_parallel=2, compile_model=False)

How to fix: turn compilation on, or leave `async_tensor_parallel` out: by default it is
on whenever it can be.
"""

from collections.abc import Iterator

from ..facts import Match, Project, Severity

CODE = "DT103"
NAME = "async-tp-needs-compile"
SEVERITY: Severity = "error"

PASSES = (
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(tensor_parallel=2, compile_model=False)
    )
    """,
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(compile_model=False, async_tensor_parallel=True)
    )
    """,
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(tensor_parallel=2, async_tensor_parallel=True)
    )
    """,
)

MATCHES = (
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(
            tensor_parallel=2, compile_model=False, async_tensor_parallel=True
        )
    )
    """,
)


def check(project: Project) -> Iterator[Match]:
    yield from project.refused(CODE)
