"""Data whose samples are numbered, and loaders of every kind around it."""

import random
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

Sample = dict[str, Tensor]


def sample(index: int, noisy: bool = True) -> Sample:
    """Row `index`, by default with a draw of the global stream in it."""
    x = torch.tensor([index / 10, 1.0, -index / 7, 0.5])
    noise = torch.randn(4) if noisy else torch.zeros(4)
    return {"id": torch.tensor(index), "x": x + 0.1 * noise, "y": x[:2].sin()}


class Rows(Dataset[Sample]):
    def __init__(self, count: int, noisy: bool = True) -> None:
        self.count, self.noisy = count, noisy

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Sample:
        return sample(index, self.noisy)


class Stream(IterableDataset[Sample]):
    """Without a length, in an order that Python's random stream gives; split over workers."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[Sample]:
        worker = torch.utils.data.get_worker_info()
        own = range(self.count) if worker is None else range(worker.id, self.count, 2)
        for index in random.sample(own, len(own)):
            yield sample(index)


class StatefulStream(IterableDataset[Sample]):
    """What torchdata asks about its position."""

    def __init__(self, count: int, noisy: bool = True) -> None:
        self.count, self.noisy = count, noisy
        self.next = 0

    def __iter__(self) -> Iterator[Sample]:
        worker = torch.utils.data.get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        start, self.next = self.next, 0
        own = range(first, self.count, step)
        for number in range(start, len(own)):
            self.next = number + 1
            yield sample(own[number], self.noisy)
        self.next = 0

    def state_dict(self) -> dict[str, int]:
        return {"next": self.next}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.next = state["next"]


class Resumable:
    """A loader of one's own: batches in an order that its epoch gives, and where it is."""

    def __init__(self, count: int = 6) -> None:
        self.count = count
        self.epoch = self.next = self.start = 0

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch, self.next, self.start = epoch, 0, 0

    def __iter__(self) -> Iterator[Sample]:
        start, self.start = self.start, 0
        order = random.Random(self.epoch).sample(range(self.count), self.count)
        for number in range(start, self.count):
            self.next = number + 1
            pair = [sample(2 * order[number] + half) for half in range(2)]
            yield {key: torch.stack([part[key] for part in pair]) for key in pair[0]}

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "next": self.next}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch = state["epoch"]
        self.next = self.start = state["next"]


class SizedResumable(Resumable):
    """Its length is that of a whole epoch."""

    def __len__(self) -> int:
        return self.count


class LeftResumable(Resumable):
    """Its length is what is left."""

    def __len__(self) -> int:
        return self.count - self.start


def stateful_loader(dataset: Any, **options: Any) -> Any:
    """torchdata's loader."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(dataset, batch_size=2, **options)
