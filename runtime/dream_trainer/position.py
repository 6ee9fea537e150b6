"""Where a run is in its training data, and how it gets there again."""

import signal
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from .configs import RunError
from .streams import RandomState

STOP_SIGNALS = [getattr(signal, n) for n in ("SIGTERM", "SIGUSR1") if hasattr(signal, n)]
"""What asks a run to save itself and stop: pre-emption, and Slurm's `--signal=USR1@SECONDS`."""


@dataclass(frozen=True)
class Position:
    """How far this rank has come in the epoch under way."""

    batches: int = 0
    """Batches of this epoch that have been trained on."""

    loader: Any = None
    """The loader's own state after the last of them; None where it keeps none."""

    start: RandomState | None = None
    """The random streams as the epoch began: a loader without a state is read again from here."""

    ahead: tuple[RandomState, ...] = ()
    """The random streams before each batch that had been read ahead of training."""

    is_counted: bool = True
    """Whether `batches` counts batches of this run, not of one with other data ranks."""

    def as_dict(self) -> dict[str, Any]:
        """As a checkpoint holds it: without classes, which another version may call otherwise."""
        start = None if self.start is None else vars(self.start)
        ahead = [vars(state) for state in self.ahead]
        return vars(self) | {"start": start, "ahead": ahead}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Position":
        start = values["start"]
        return cls(
            values["batches"],
            values["loader"],
            None if start is None else RandomState(**start),
            tuple(RandomState(**state) for state in values["ahead"]),
            values.get("is_counted", True),
        )


@dataclass
class Reader:
    """Reads a training loader and knows where it is; begins at `position`.

    A loader with `state_dict` and `load_state_dict` goes on from its state; one without, or
    whose state is of no use to other ranks, is read again up to the position, with the random
    streams that it had, which gives the same batches. `keeps` says whether a position will be
    asked for at all.
    """

    loader: Any
    position: Position = Position()
    keeps: bool = False
    reads_ahead: bool = False
    given: int = field(default=0, init=False)
    """Batches that have been handed to training, those before the position included."""

    waited: float = field(default=0.0, init=False)
    """Seconds spent in the loader, since reading began."""

    def __post_init__(self) -> None:
        self.is_stateful = hasattr(self.loader, "state_dict") and hasattr(
            self.loader, "load_state_dict"
        )
        self.has_state = self.is_stateful and self.position.loader is not None
        self.generators = generators(self.loader)
        self.start = self.position.start
        self.given = self.position.batches
        self.given_state: Any = None
        self.pending: deque[tuple[RandomState, Any]] = deque()
        self.replayed = deque(self.position.ahead)
        self.afterwards: RandomState | None = None

    def load(self) -> int | None:
        """Bring the loader to the position. Returns how many batches are left, where it knows."""
        total = length(self.loader)
        if not self.given:
            return total
        if self.has_state:
            self.loader.load_state_dict(self.position.loader)
            left = length(self.loader)
            if left != total:  # Its len() counts what is left.
                return left
        return None if total is None or not self.position.is_counted else total - self.given

    def __iter__(self) -> Iterator[Any]:
        if not self.given:
            self.start = self._streams() if self.keeps else None
            self.batches = self._open()
            return self
        now = self._streams()
        if not self.has_state:
            self.start = self.start or now
            self.start.restore(generators=self.generators)
        self.batches = self._open()
        if not self.has_state:
            self._read_past(self.given)
        if self.replayed:
            self.afterwards = now
        else:
            now.restore(generators=self.generators)
        return self

    def __next__(self) -> Any:
        if self.replayed:
            self.replayed.popleft().restore(generators=self.generators)
        records = self.keeps and self.reads_ahead
        before = self._streams() if records else None
        begin = time.perf_counter()
        batch = next(self.batches)
        self.waited += time.perf_counter() - begin
        if before is not None:
            self.pending.append((before, self.loader.state_dict() if self.is_stateful else None))
        if self.afterwards is not None and not self.replayed:
            self.afterwards.restore(generators=self.generators)
            self.afterwards = None
        return batch

    def hand_over(self) -> None:
        """The oldest batch that was read goes to training."""
        self.given += 1
        if self.pending:
            _, self.given_state = self.pending.popleft()

    def snapshot(self) -> Position:
        """Where training is now: to be asked between two batches."""
        state = None
        if self.is_stateful:
            state = self.given_state if self.pending else self.loader.state_dict()
        ahead = tuple(before for before, _ in self.pending)
        start = None if self.is_stateful else self.start
        return Position(self.given, state, start, ahead, self.position.is_counted)

    def _open(self) -> Iterator[Any]:
        with shielded():
            return iter(self.loader)

    def _read_past(self, count: int) -> None:
        for index in range(count):
            try:
                next(self.batches)
            except StopIteration:
                raise RunError(
                    f"The training loader ended after {index} batches, but the run was at batch "
                    f"{count} of the epoch. Resume with the same data, or use init_from."
                ) from None

    def _streams(self) -> RandomState:
        return RandomState.capture(generators=self.generators)


@contextmanager
def shielded() -> Iterator[None]:
    """Keep SIGTERM and SIGUSR1 from the workers that a loader starts in here.

    A scheduler sends them to every process of a job; a worker that died of one would end the
    run, which wants to save itself first. Workers end with the process that they work for.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows has no such signals.
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def generators(loader: Any) -> list[torch.Generator]:
    """The generators that a loader and its samplers draw from."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    owners = (
        loader,
        getattr(loader, "sampler", None),
        batch_sampler,
        getattr(batch_sampler, "sampler", None),
    )
    found = [getattr(owner, "generator", None) for owner in owners]
    return list({id(g): g for g in found if isinstance(g, torch.Generator)}.values())


def length(loader: Any) -> int | None:
    """`len(loader)`; None where it does not know."""
    try:
        return len(loader)
    except TypeError:
        return None
