"""Batches: onto the device, one looked up ahead, ended by all ranks together."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from itertools import count
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DistributedSampler

from .configs import RunError
from .position import Reader, length, shielded
from .world import World


def move(batch: Any, device: torch.device) -> Any:
    """`batch`, see `replaced`, with its tensors on `device`."""
    return replaced(batch, lambda tensor: tensor.to(device, non_blocking=True))


def replaced(batch: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A copy of a (nested) mapping, list, tuple or dataclass with every tensor changed."""
    if isinstance(batch, Tensor):
        return change(batch)
    if isinstance(batch, dict):
        return {key: replaced(value, change) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(replaced(value, change) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(replaced(value, change) for value in batch)
    if isinstance(batch, MutableMapping):  # A UserDict, as tokenizers return.
        changed = copy.copy(batch)
        changed.update({key: replaced(value, change) for key, value in batch.items()})
        return changed
    if is_dataclass(batch) and not isinstance(batch, type):
        twin = copy.copy(batch)
        for field in fields(batch):  # Past __init__ and frozen=True: only tensors change.
            value = replaced(getattr(batch, field.name), change)
            object.__setattr__(twin, field.name, value)
        return twin
    return batch


def count_rows(batch: Any) -> int:
    """Rows of the first tensor in a batch; 1 where it holds none."""
    rows = _rows(batch)
    return 1 if rows is None else rows


def _rows(batch: Any) -> int | None:
    if isinstance(batch, Tensor):
        return batch.shape[0] if batch.ndim else 1
    if is_dataclass(batch):
        batch = [getattr(batch, field.name, None) for field in fields(batch)]
    values = batch.values() if isinstance(batch, Mapping) else batch
    if not isinstance(batch, (Mapping, list, tuple)):
        return None
    return next((rows for rows in map(_rows, values) if rows is not None), None)


def set_epoch(loader: Any, epoch: int) -> None:
    """Tell a loader, its samplers and its dataset the epoch, so that each is shuffled anew."""
    batch_sampler = _batch_sampler(loader)
    parts = [
        loader,
        getattr(loader, "sampler", None),
        batch_sampler,
        getattr(batch_sampler, "sampler", None),
        getattr(loader, "dataset", None),
    ]
    for part in {id(part): part for part in parts if hasattr(part, "set_epoch")}.values():
        part.set_epoch(epoch)


@contextmanager
def unpadded(loader: Any) -> Iterator[None]:
    """For a validation, let the loader's `DistributedSampler` give every sample exactly once.

    By default it repeats samples until all ranks have equally many, and the repeated
    ones count twice in every mean. The sampler may serve training as well: it is put back.
    """
    samplers = (getattr(part, "sampler", None) for part in (loader, _batch_sampler(loader)))
    padded = [s for s in samplers if isinstance(s, DistributedSampler) and not s.drop_last]
    before = [(sampler.total_size, sampler.num_samples) for sampler in padded]
    for sampler in padded:
        size = len(sampler.dataset)  # type: ignore[arg-type]
        sampler.total_size = size
        sampler.num_samples = len(range(sampler.rank, size, sampler.num_replicas))
    try:
        yield
    finally:
        for sampler, (total, own) in zip(padded, before, strict=True):
            sampler.total_size, sampler.num_samples = total, own


def _batch_sampler(loader: Any) -> Any:
    return getattr(loader, "batch_sampler", None)


class TrainBatches:
    """Training batches until `limit`, or until the first rank has no more.

    Iterating yields (batch, is_last), from the reader's position on. Loaders that know their
    length settle the number once; otherwise the ranks agree on every batch, two ahead, while
    the step computes. `limit` counts from the position.
    """

    def __init__(self, reader: Reader, limit: int | None, world: World) -> None:
        self.reader = reader
        self.limit = limit
        self.world = world
        self.before = reader.given
        self.ended_by = ""
        """What ended the epoch, in the log's words."""

    def __iter__(self) -> Iterator[tuple[Any, bool]]:
        left = self.reader.load()
        lefts = _gather(-1 if left is None else left, self.world)
        self.reader.reads_ahead = min(lefts) < 0
        return self._unsized() if min(lefts) < 0 else self._sized(lefts)

    def _sized(self, lengths: list[int]) -> Iterator[tuple[Any, bool]]:
        available = min(lengths)
        total = available if self.limit is None else min(available, self.limit)
        count = self.before + total
        if total == self.limit:
            self.ended_by = f"after {count} batches, as configured"
        else:
            self.ended_by = f"with the data, after {count} batches{_unequal(lengths, self.world)}"
        batches = iter(self.reader)
        for index in range(total):
            batch = next(batches, _END)
            if batch is _END:
                raise RunError(
                    f"The training loader ended after {self.before + index} batches, but its "
                    f"len() promised {length(self.reader.loader)}. Correct its __len__, or leave "
                    "it out."
                )
            self.reader.hand_over()
            yield batch, index == total - 1

    def _unsized(self) -> Iterator[tuple[Any, bool]]:
        votes = _votes(iter(self.reader), self.limit, self.world, dist.ReduceOp.MIN)
        batch, vote = next(votes)
        following = next(votes)
        goes_on = vote()
        index = 0
        while goes_on:
            index += 1
            after = next(votes)
            goes_on = following[1]()
            if index == self.limit:
                self.ended_by = f"after {self.before + index} batches, as configured"
            elif not goes_on:
                self._end_with_data(index, following[0] is not _END)
            self.reader.hand_over()
            yield batch, not goes_on
            batch, following = following[0], after
        if not index:
            self._end_with_data(0, batch is not _END)
        following[1]()

    def _end_with_data(self, index: int, has_more: bool) -> None:
        had = _unequal(_gather(int(has_more), self.world), self.world)
        self.ended_by = f"with the data, after {self.before + index} batches{had}"


class ValidationBatches:
    """Validation batches until `limit`, or until the last rank has no more.

    Iterating yields (batch, counts). A rank that runs out repeats its last batch, which
    does not count, so that every rank enters every collective of the model.
    """

    def __init__(self, loader: Iterable[Any], limit: int | None, world: World) -> None:
        self.loader = loader
        self.limit = limit
        self.world = world

    def __iter__(self) -> Iterator[tuple[Any, bool]]:
        with shielded():
            batches = iter(self.loader)
        votes = _votes(batches, self.limit, self.world, dist.ReduceOp.MAX)
        last: Any = _END
        batch, vote = next(votes)
        following = next(votes)
        goes_on = vote()
        while goes_on:
            after = next(votes)
            counts = batch is not _END
            last = batch if counts else last
            if last is _END:
                raise RunError(
                    f"dp rank {self.world.dp_rank} has no validation batch, others have. "
                    "Use a smaller batch, or validate on more data."
                )
            goes_on = following[1]()
            yield last, counts
            batch, following = following[0], after
        following[1]()


Vote = Callable[[], bool]
_END = object()


def _votes(
    batches: Iterator[Any], limit: int | None, world: World, op: Any
) -> Iterator[tuple[Any, Vote]]:
    """(batch, whether the ranks go on to it) for ever; `_END` once this rank has no more."""
    batch: Any = None
    for index in count():
        if index == limit or (batch is _END and world.loss_size == 1):
            break
        batch = _END if batch is _END else next(batches, _END)
        yield batch, _vote(batch is not _END, world, op)
    while True:
        yield _END, lambda: False


def _vote(has_batch: bool, world: World, op: Any) -> Vote:
    if world.loss_size == 1:
        return lambda: has_batch
    flag = torch.tensor(int(has_batch))  # On the CPU: reading it costs no device sync.
    work = dist.all_reduce(flag, op, group=world.loss_group, async_op=True)

    def outcome() -> bool:
        work.wait()
        return bool(flag)

    return outcome


def _gather(number: int, world: World) -> list[int]:
    """Every data rank's `number`. All data ranks take part."""
    if world.loss_size == 1:
        return [number]
    numbers = [torch.empty((), dtype=torch.int64) for _ in range(world.loss_size)]
    dist.all_gather(numbers, torch.tensor(number), group=world.loss_group)
    return [int(number) for number in numbers]


def _unequal(left: list[int], world: World) -> str:
    """Who ended the epoch for all, where some data ranks still had batches."""
    left = left[:: world.axes.cp]  # Ranks along cp read the same.
    first = [str(rank) for rank, count in enumerate(left) if count == min(left)]
    if len(first) == len(left):
        return ""
    ranks = "rank" if len(first) == 1 else "ranks"
    return f"; dp {ranks} {', '.join(first)} ran out while others had more"
