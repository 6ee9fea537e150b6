"""Checkpoint settings that cannot be, or that exclude each other.

`CheckpointParameters` refuses a cadence of no steps, minutes or epochs, a `keep_top_k` that
would keep nothing, and a run that is to go on (`resume`) and to start anew with other weights
(`init_from`) at once. All of it would be found only when the run starts, in the queue's time.

Bad:

    CheckpointParameters(checkpoint_every_n_steps=0)
    CheckpointParameters(resume="run", init_from="runs/base")

Good:

    CheckpointParameters(checkpoint_every_n_steps=500, keep_top_k=3)

How to fix: the help says what is possible.
"""

from collections.abc import Iterator

from ..facts import Match, Project, Severity

CODE = "DT108"
NAME = "contradictory-checkpoints"
SEVERITY: Severity = "error"

PASSES = (
    """
    config = DreamTrainerConfig(
        checkpoint_parameters=CheckpointParameters(checkpoint_every_n_minutes=7.5)
    )
    """,
    """
    config = DreamTrainerConfig(checkpoint_parameters=CheckpointParameters(resume="run"))
    """,
)

MATCHES = (
    """
    config = DreamTrainerConfig(
        checkpoint_parameters=CheckpointParameters(checkpoint_every_n_steps=0)
    )
    """,
    """
    config = DreamTrainerConfig(checkpoint_parameters=CheckpointParameters(keep_top_k=0))
    """,
    """
    config = DreamTrainerConfig(
        checkpoint_parameters=CheckpointParameters(resume="run", init_from="runs/base")
    )
    """,
)


def check(project: Project) -> Iterator[Match]:
    yield from project.refused(CODE)
