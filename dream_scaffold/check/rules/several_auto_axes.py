"""More than one axis is "auto".

An axis that is "auto" takes the ranks that the others leave. Two of them leave no
answer, and the run would stop before the first process group is made. The one exception
is `tensor_parallel="auto"` beside another: it takes the ranks of one node.

Bad:

    DeviceParameters.FSDP(dp_replicate="auto")    # FSDP() has dp_shard="auto" already

Good:

    DeviceParameters.HSDP(dp_shard=8)             # dp_replicate takes the rest

How to fix: give all but one of the axes a number.
"""

from collections.abc import Iterator

from ..facts import Match, Project, Severity

CODE = "DT101"
NAME = "several-auto-axes"
SEVERITY: Severity = "error"

PASSES = (
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP()
    )
    """,
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(tensor_parallel="auto")
    )
    """,
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.HSDP(dp_shard=4)
    )
    """,
)

MATCHES = (
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(dp_replicate="auto")
    )
    """,
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters(dp_shard="auto", context_parallel="auto")
    )
    """,
)


def check(project: Project) -> Iterator[Match]:
    yield from project.refused(CODE)
