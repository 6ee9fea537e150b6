"""The axes do not multiply to the number of processes.

Every process holds one place in the mesh. If the degrees multiply to more or fewer
places than there are processes, the run stops at start-up, or some ranks never join.
Checked when the number is given: `--world-size N`, or `--nnodes N --nproc-per-node M`.

Bad:

    DeviceParameters.FSDP(tensor_parallel=3)    # dream check --world-size 8

Good:

    DeviceParameters.FSDP(tensor_parallel=2)    # dp_shard takes 8 / 2 = 4

How to fix: the help names the sizes that fit. A configuration that `train.py` launches
only by `--config`, or not at all, is an info: check it with `dream check --config NAME`.
"""

from collections.abc import Iterator

from ..facts import Match, Project, Severity

CODE = "DT102"
NAME = "axes-misfit"
SEVERITY: Severity = "error"

PASSES = (
    """
    # dream check --world-size 8
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(tensor_parallel=2)
    )
    """,
    """
    # dream check --world-size 8
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.HSDP(dp_shard=4)
    )
    """,
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters(dp_shard=3)
    )
    """,
)

MATCHES = (
    """
    # dream check --world-size 8
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(tensor_parallel=3)
    )
    """,
    """
    # dream check --nnodes 2 --nproc-per-node 8
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters(dp_shard=8)
    )
    """,
)


def check(project: Project) -> Iterator[Match]:
    yield from project.refused(CODE)
