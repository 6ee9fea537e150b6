"""When to stop and save: signals and the clock, agreed on by all ranks."""

import os
import signal
import time
from types import FrameType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from ..position import STOP_SIGNALS
from ..world import World

STOPPED = 75
"""Exit code of a run that saved and stopped early: EX_TEMPFAIL, start it again to go on."""

TIME_LIMIT = 99


def exit_code() -> int:
    """How a stopped run ends: torchrun with restarts to spare would start it again at once."""
    return 0 if int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", 0)) else STOPPED


class Agreed(NamedTuple):
    """What all ranks do at this boundary."""

    stop: str
    """Why the run stops; empty where it goes on."""

    save: bool


class Requests:
    """Asks all ranks at every boundary, without waiting: the answer comes at the next one."""

    def __init__(self, world: World, limit_minutes: float | None, every: float | None) -> None:
        self.world = world
        self.received = 0
        self.limit = None if limit_minutes is None else time.monotonic() + 60 * limit_minutes
        self.every = every
        self.saved_at = time.monotonic()
        self.asked: tuple[Any, torch.Tensor] | None = None
        self.is_outdated = False
        """Whether the save that is being asked for has been made in the meantime."""

        self.handlers: dict[int, Any] = {}

    def listen(self) -> None:
        """Note the signals instead of dying of them."""
        for number in STOP_SIGNALS:
            try:
                self.handlers[number] = signal.signal(number, self._note)
            except ValueError:  # Only the main thread may listen.
                return

    def close(self) -> None:
        """Leave the signals to whom they belonged."""
        for number, handler in self.handlers.items():
            signal.signal(number, handler)
        self.handlers = {}
        if self.asked is not None:
            self.asked[0].wait()  # Peers have asked as well: nothing may be left in flight.
            self.asked = None

    def poll(self) -> Agreed:
        """What the ranks agreed on. All ranks take part, in the same order."""
        stop, save = self._stop(), self._save()
        if self.world.world_size == 1 or self.world.is_simulated:
            return _agreed(stop, save)
        own = torch.tensor([stop, save])
        before, self.asked = (
            self.asked,
            (dist.all_reduce(own, dist.ReduceOp.MAX, async_op=True), own),
        )
        if before is None:
            return Agreed("", False)
        before[0].wait()
        agreed = _agreed(*before[1].tolist())
        if self.is_outdated:
            agreed = agreed._replace(save=False)
        self.is_outdated = False
        return agreed

    def saved(self) -> None:
        """The time to the next save by the clock starts now."""
        self.saved_at = time.monotonic()
        self.is_outdated = self.asked is not None

    def _stop(self) -> int:
        if self.limit is not None and time.monotonic() > self.limit:
            return self.received or TIME_LIMIT
        return self.received

    def _save(self) -> int:
        """Rank 0's clock decides."""
        due = self.every is not None and time.monotonic() - self.saved_at > 60 * self.every
        return int(due and self.world.is_rank_zero)

    def _note(self, number: int, _: FrameType | None) -> None:
        self.received = number


def _agreed(stop: int, save: int) -> Agreed:
    if not stop:
        return Agreed("", bool(save))
    return Agreed("time limit" if stop == TIME_LIMIT else signal.Signals(stop).name, bool(save))
