"""`force_ddp` and `force_fsdp` are both on.

The first replicates the model where the degrees say shard, the second shards it where
they say replicate. A model cannot be laid out both ways.

Bad:

    DeviceParameters.FSDP(force_ddp=True, force_fsdp=True)

Good:

    DeviceParameters.FSDP(force_ddp=True)

How to fix: set one of them to False. `--force-ddp` and `--force-fsdp` on the command
line of `train.py` do the same for one run.
"""

from collections.abc import Iterator

from ..facts import Match, Project, Severity

CODE = "DT105"
NAME = "forced-both-ways"
SEVERITY: Severity = "error"

PASSES = (
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(force_ddp=True)
    )
    """,
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.DDP(force_fsdp=True)
    )
    """,
)

MATCHES = (
    """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters(force_ddp=True, force_fsdp=True)
    )
    """,
)


def check(project: Project) -> Iterator[Match]:
    yield from project.refused(CODE)
