"""Cases that only real ranks show, in one process group: `torchrun uneven.py`.

Each rank prints one line of JSON per case: [rank, case, outcome]. The last case ends the
run with an error, as it must.
"""

import json
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler

from dream_trainer import callbacks
from dream_trainer.configs import DeviceParameters, RunError
from dream_trainer.metrics import Mean
from dream_trainer.utils.entrypoint import guarded
from tests.runtime.tiny import FLOAT32, Batch, TinyTrainer, batches, config, joined, set_up

DDP = DeviceParameters.DDP(**FLOAT32)
FSDP = DeviceParameters.FSDP(**FLOAT32)


class Stream:
    """Batches without a length."""

    def __init__(self, data: Sequence[Batch]) -> None:
        self.data = data

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.data)


class Keep(callbacks.Callback):
    """The results of all validations."""

    def __init__(self) -> None:
        self.found: list[dict[str, float]] = []

    def post_validation_epoch(self, trainer: Any, result: dict[str, float]) -> None:
        self.found.append(result)


def tell(case: str, outcome: Any) -> None:
    # One write a line: the lines of two ranks must not mix.
    sys.stdout.write(json.dumps([dist.get_rank(), case, outcome]) + "\n")
    sys.stdout.flush()


def ends(case: str, train: Iterable[Batch], device: DeviceParameters, **training: Any) -> None:
    """How many steps a run has, and why it ended."""
    trainer = TinyTrainer(config(device, **training), train)
    try:
        trainer.fit()
    except RunError as error:
        tell(case, str(error))
    else:
        tell(case, [trainer.global_step, trainer.epoch_ended])


def training(rank: int, size: int) -> None:
    for name, device in {"ddp": DDP, "fsdp": FSDP}.items():
        ends(f"sized {name}", batches(3 + (rank > 0), seed=rank), device)
        ends(f"unsized {name}", Stream(batches(3 + (rank > 0), seed=rank)), device)
    ends("last rank first", Stream(batches(4 - (rank == size - 1))), DDP)
    ends("even", batches(3), DDP)
    ends("even unsized", Stream(batches(3)), DDP)
    ends("limited", batches(3 + rank), DDP, max_steps=2)
    ends("limited unsized", Stream(batches(3 + rank)), DDP, max_steps=2)
    ends("limit is the end", Stream(batches(2 + rank)), DDP, max_steps=2)
    ends("one knows its length", batches(3) if rank else Stream(batches(4)), DDP)
    ends("window cut short", Stream(batches(3 + rank)), FSDP, gradient_accumulation_steps=2)
    ends("two epochs", Stream(batches(2 + rank)), FSDP, n_epochs=2)
    ends("nothing on one", Stream(batches(2 if rank else 0)), DDP)


def validated(
    case: str, val: Any, whole: Batch, device: DeviceParameters = FSDP, train: Any = None
) -> None:
    """The validation's mean beside that of all samples at once."""
    keep = Keep()
    trainer = TinyTrainer(config(device, [keep], max_steps=1), train or batches(1), val)
    trainer.fit()
    with torch.no_grad():
        expected = F.mse_loss(trainer.model(whole["x"]), whole["y"]).item()
    tell(case, [keep.found[0]["val/loss"], expected])


def validation(rank: int, size: int) -> None:
    shares = [
        [batches(1, rows=1 + r + i, seed=10 * r + i)[0] for i in range(1 + r)] for r in range(size)
    ]
    whole = joined([batch for share in shares for batch in share])
    validated("uneven batches", shares[rank], whole)
    validated("uneven stream", Stream(shares[rank]), whole)
    validated("uneven ddp", Stream(shares[rank]), whole, DDP)

    samples = 2 * size + 1
    rows = batches(samples, rows=1)
    items = [{key: value[0] for key, value in row.items()} for row in rows]
    for batch_size in (1, 2, 8):
        sampler = DistributedSampler(items, size, rank, shuffle=False)  # type: ignore[arg-type]
        loader = DataLoader(items, batch_size, sampler=sampler)  # type: ignore[arg-type, var-annotated]
        validated(f"padded by {batch_size}", loader, joined(rows))
    sampler = DistributedSampler(items, size, rank, shuffle=False)  # type: ignore[arg-type]
    both = DataLoader(items, 2, sampler=sampler)  # type: ignore[arg-type, var-annotated]
    validated("one loader for both", both, joined(rows), train=both)


class Summing(TinyTrainer):
    """A sum over the rows that count; the number of them as a tensor."""

    learning_rate = 1.0

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        errors = (self.model(batch["x"]) - batch["y"]).square().mean(1)
        self.items = batch["counts"].sum()
        self.backward((errors * batch["counts"]).sum(), num_items=self.items)
        self.step(self.optimizer)
        return {}


def counted(rank: int, size: int) -> None:
    """Weights after one step on uneven counts: this mesh beside one big batch by hand."""
    for window in (1, 2):
        shares = []
        for r in range(size):
            share = batches(window, rows=6, seed=r)
            for index, batch in enumerate(share):
                batch["counts"] = (torch.arange(6) <= r + 2 * index).long()
            shares.append(share)
        rows = [{k: v[b["counts"] > 0] for k, v in b.items()} for share in shares for b in share]
        whole = joined(rows)
        for name, device in {"ddp": DDP, "fsdp": FSDP}.items():
            trainer = Summing(config(device, gradient_accumulation_steps=window), shares[rank])
            trainer.fit()
            after = [full(p) for p in trainer.model.parameters()]
            reference = set_up(TinyTrainer(config(DDP)))
            loss = F.mse_loss(reference.model(whole["x"]), whole["y"])
            wanted = torch.autograd.grad(loss, list(reference.model.parameters()))
            pairs = zip(after, reference.model.parameters(), wanted, strict=True)
            gap = max((a - (p - g)).abs().max().item() for a, p, g in pairs)
            tell(f"items {name} window {window}", gap < 1e-6)
            own = int(shares[rank][-1]["counts"].sum())
            tell(f"own items {name} window {window}", [int(trainer.items), own])


def full(tensor: Tensor) -> Tensor:
    whole = getattr(tensor, "full_tensor", None)
    return (whole() if whole is not None else tensor).detach()


def metrics(rank: int, size: int) -> None:
    world = set_up(TinyTrainer(config(DDP))).world
    mean = Mean(world)
    for index in range(rank + 1):
        mean.add({"a": float(10 * rank + index), "skipped": None}, weight=1 + index)
    mean.add({"b": torch.tensor(float(rank))})
    tell("mean", mean.reduce())
    tell("nothing", Mean(world).reduce())

    for name, values in {
        "equal names": {"a": 1.0, "b": 2.0},
        "one lacks one": {"a": 1.0, "b": 2.0} if rank else {"a": 1.0},
        "each lacks one": {"a": 1.0, "c": 0.0} if rank else {"a": 1.0, "b": 2.0},
        "one logs nothing": {"a": 1.0} if rank else {},
    }.items():
        mean = Mean(world)
        mean.add(values)
        try:
            tell(name, mean.reduce())
        except RunError as error:
            tell(name, str(error))


@guarded
def main() -> None:
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    training(rank, size)
    validation(rank, size)
    counted(rank, size)
    metrics(rank, size)
    trainer: nn.Module | Any = TinyTrainer(
        config(FSDP, max_steps=1), batches(1), batches(2) if rank else []
    )
    trainer.fit()
    tell("no validation batch", "was no error")


if __name__ == "__main__":
    main()
