"""A degree of parallelism is not a whole number from 1, nor "auto".

A degree says how many ranks share one axis of the mesh. One is the least there can be:
it turns the axis off. Booleans and text are refused rather than read as numbers.

Bad:

    DeviceParameters(dp_shard=0)
    DeviceParameters(dp_replicate="all")

Good:

    DeviceParameters(dp_shard=1)
    DeviceParameters(dp_replicate="auto")

How to fix: use 1 to turn an axis off, and "auto" for whatever the other axes leave.
"""

from collections.abc import Iterator

from ..facts import Match, Project, Severity

CODE = "DT104"
NAME = "bad-degree"
SEVERITY: Severity = "error"

PASSES = (
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters(dp_shard=1)
    )
    """,
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters(dp_shard="auto")
    )
    """,
)

MATCHES = (
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters(dp_shard=0)
    )
    """,
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.DDP(dp_replicate="all")
    )
    """,
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters(tensor_parallel=True)
    )
    """,
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.HSDP(dp_shard=-1)
    )
    """,
)


def check(project: Project) -> Iterator[Match]:
    yield from project.refused(CODE)
