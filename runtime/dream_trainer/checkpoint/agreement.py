"""One rank's failure is every rank's: nobody goes on, nobody is waited for in vain."""

from collections.abc import Callable
from typing import TypeVar

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException

from ..configs import RunError
from ..world import World

T = TypeVar("T")


def together(world: World, work: Callable[[], T], what: str) -> T:
    """`work()`; where it fails on any rank, the same `RunError` is raised on all of them.

    All ranks take part. `what` begins the message of an error that is not a `RunError`.
    """
    result: list[T] = []
    failure: str | None = None
    try:
        result.append(work())
    except (Exception, CheckpointException) as error:  # DCP's is no Exception.
        told = f"{what}: {type(error).__name__}: {first_line(error)}"
        failure = str(error) if isinstance(error, RunError) else told
    failures = [failure] * world.world_size
    if world.world_size > 1:
        dist.all_gather_object(failures, failure)
    for text in filter(None, failures):
        raise RunError(text)
    return result[0]


def first_failure(error: CheckpointException) -> tuple[int, BaseException]:
    """The first rank that failed in something of DCP's, and its own error."""
    rank, (failure, _) = min(error.failures.items())
    return rank, failure


def first_line(error: BaseException) -> str:
    """What an error says first; DCP's errors say first what failed first."""
    if isinstance(error, CheckpointException) and error.failures:
        return first_line(first_failure(error)[1])
    return str(error).strip().partition("\n")[0]
