"""Compiled code that is compiled again with every shape, until the compiler gives up."""

from ..world import World
from .replicas import warn

AFTER_STEPS = 20
TOLERATED = 4
"""Training, validation and a shorter last batch are compiled apart, and rightly so."""


def warn_of_recompiles(world: World) -> None:
    """Say how often code was compiled again in the first steps, and why the last time."""
    from torch._dynamo.utils import get_compilation_metrics

    reasons = [found.recompile_reason for found in get_compilation_metrics()]
    again = [reason for reason in reasons if reason]
    if len(again) > TOLERATED:
        warn(
            world,
            f"code was compiled again {len(again)} times in {AFTER_STEPS} steps, last because "
            f"{again[-1]}. Pad batches to fixed shapes, or compile with dynamic=True.",
        )
