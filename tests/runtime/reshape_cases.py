"""Trains one case after the other in one process group; each goes on from an earlier one's file.

    torchrun reshape_cases.py CASES.json ROOT

A case is {"name", "after", "stop", "loader", "rows", "dropout", "device"}: a run of two epochs,
with so many rows in a batch of each rank, that begins with the checkpoints of the case `after`
and ends at step `stop`. Its record, ROOT/NAME.json, is {"steps": {step: {"loss", "ids"}},
"wrong": [...], "lines", "streams": a draw of each rank after it was restored}.
"""

import contextlib
import io
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.checkpoint import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader, DistributedSampler

from dream_trainer.callbacks import Callback, CheckpointCallback, LoggerCallback
from dream_trainer.checkpoint.manifest import checkpoints
from dream_trainer.checkpoint.state import collect
from dream_trainer.checkpoint.store import Store
from dream_trainer.configs import (
    CheckpointParameters,
    DeviceParameters,
    LoggingParameters,
    TrainingParameters,
)
from dream_trainer.utils.entrypoint import guarded
from tests.runtime import sized

ROWS, GLOBAL_BATCH = 40, 8


class Tokens(torch.utils.data.Dataset[dict[str, Tensor]]):
    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        draws = torch.Generator().manual_seed(int(index))
        tokens = torch.randint(sized.VOCABULARY, (sized.SEQUENCE,), generator=draws)
        return {"id": torch.tensor(int(index)), "tokens": tokens}


class ByRank:
    """A loader whose state is about its own rank's part of the data: rows of one parity."""

    def __init__(self, rank: int, ranks: int, batch_size: int | None) -> None:
        self.own = torch.arange(rank, ROWS, ranks)
        self.batch_size = batch_size or GLOBAL_BATCH // ranks
        self.rest: list[int] = []
        self.resumed = False

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        if not self.resumed:
            self.rest = self.own.tolist()
        self.resumed = False
        while self.rest:
            now, self.rest = self.rest[: self.batch_size], self.rest[self.batch_size :]
            rows = [Tokens()[index] for index in now]
            yield {key: torch.stack([row[key] for row in rows]) for key in rows[0]}

    def state_dict(self) -> dict[str, Any]:
        return {"rest": self.rest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rest, self.resumed = state["rest"], True


class InCommon(ByRank):
    """A loader whose state counts the rows of all ranks."""

    global_position = True

    def __init__(self, rank: int, ranks: int, batch_size: int | None) -> None:
        super().__init__(rank, ranks, batch_size)
        self.rank, self.ranks = rank, ranks
        self.done = self.start = 0

    def __len__(self) -> int:
        return ROWS // (self.batch_size * self.ranks)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        start, self.start = self.start, 0
        for first in range(start, ROWS, self.batch_size * self.ranks):
            self.done = first + self.batch_size * self.ranks
            rows = [Tokens()[i] for i in range(first + self.rank, self.done, self.ranks)]
            yield {key: torch.stack([row[key] for row in rows]) for key in rows[0]}

    def state_dict(self) -> dict[str, Any]:
        return {"done": self.done}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.done = self.start = state["done"]


class Trainer(sized.Trainer):
    """Its loss has, on request, a dropout in it."""

    case: dict[str, Any]

    def context_parallel_buffers(self, batch: Any) -> list[tuple[Tensor, int]]:
        return [(batch["tokens"], 1)]

    def configure_schedulers(self) -> Any:
        return {self.optimizer: torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)}

    def configure_dataloaders(self) -> Any:
        ranks, rank = self.world.dp_size, self.world.dp_rank
        kind = self.case.get("loader", "sampler")
        make: Any
        if kind in ("by rank", "in common"):
            make = ByRank if kind == "by rank" else InCommon
            return make(rank, ranks, self.case.get("rows")), None
        data = Tokens()
        sampler: DistributedSampler[Any] = DistributedSampler(data, ranks, rank, seed=5)
        make = DataLoader
        if kind == "torchdata":
            from torchdata.stateful_dataloader import StatefulDataLoader as make
        size = self.case.get("batch", GLOBAL_BATCH) // ranks
        return make(data, batch_size=size, sampler=sampler), None

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        tokens = batch["tokens"]
        loss = self.pipeline(self.model, tokens, target=tokens, loss=sized.next_token)
        if self.case.get("dropout"):
            loss = loss * F.dropout(torch.ones(64)).mean()
        self.backward(loss)
        self.step(self.optimizer)
        return {"train/loss": loss}


class Recorder(Callback):
    """Holds what was restored against the file, and records losses and samples."""

    logs = True

    def __init__(self, case: dict[str, Any], root: Path) -> None:
        self.case, self.root = case, root
        self.record: dict[str, Any] = {"steps": {}, "wrong": [], "streams": []}

    def pre_fit(self, trainer: Any) -> None:
        if trainer.start_step:
            self.record["wrong"] = self.compare(trainer)
        state = torch.get_rng_state()
        self.record["streams"] = gathered(torch.rand(2).tolist(), trainer.world.world_size)
        torch.set_rng_state(state)

    def compare(self, trainer: Any) -> list[str]:
        """The names of all tensors that are not those of the newest checkpoint, to the bit."""
        store = Store(self.root / self.case["name"] / "run/checkpoints")
        saved = tensors_of(store, checkpoints(store)[0].name)
        wrong, own = [], set()
        for name, tensor in collect(trainer).items():
            if isinstance(tensor, Tensor):
                whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
                own.add(name)
                if not torch.equal(whole, saved[name]):
                    wrong.append(name)
        every = gathered((own, wrong), trainer.world.world_size)
        held = set().union(*(names for names, _ in every))
        return sorted(saved.keys() ^ held) + sorted(set().union(*(w for _, w in every)))

    def post_train_step(self, trainer: Any, result: Any, batch: Any, batch_idx: int) -> None:
        world = trainer.world
        ids = gathered((world.dp_rank, batch["id"].tolist()), world.world_size)
        by_rank = dict(ids)
        self.record["steps"][trainer.global_step] = {
            "loss": trainer.logged["train/loss"],
            "ids": [by_rank[rank] for rank in sorted(by_rank)],
        }
        if trainer.global_step == self.case["stop"]:
            trainer.is_stopping = True


def gathered(value: Any, size: int) -> list[Any]:
    """Every rank's `value`."""
    values = [value] * size
    if size > 1:
        dist.all_gather_object(values, value)
    return values


def tensors_of(store: Store, name: str) -> dict[str, Tensor]:
    """Every tensor of a checkpoint, read by this process alone."""
    reader = store.reader(name)
    state = {
        key: torch.empty(entry.size, dtype=entry.properties.dtype)
        for key, entry in reader.read_metadata().state_dict_metadata.items()
        if isinstance(entry, TensorStorageMetadata)
    }
    planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    dcp.load(state, storage_reader=reader, planner=planner, no_dist=True)
    return state


def train(case: dict[str, Any], root: Path) -> None:
    after = case["after"]
    if after and os.environ.get("RANK", "0") == "0":  # Which alone looks what is there.
        shutil.copytree(root / after, root / case["name"])
    recorder = Recorder(case, root)
    config = sized.Config(
        experiment="run",
        device_parameters=DeviceParameters(
            compile_model=False, param_dtype="float32", **case["device"]
        ),
        training_parameters=TrainingParameters(n_epochs=2, gradient_clip_val=1.0),
        logging_parameters=LoggingParameters(enabled=False, log_every_n_steps=1),
        checkpoint_parameters=CheckpointParameters(
            root_dir=str(root / case["name"]),
            checkpoint_every_n_steps=100,
            resume="run" if after else None,
        ),
        callbacks=[LoggerCallback(), recorder, CheckpointCallback()],
    )
    trainer = Trainer(config)
    trainer.case = case
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        trainer.fit()
    if trainer.world.is_rank_zero:
        lines = [line for line in told.getvalue().splitlines() if line.startswith("resume:")]
        record = json.dumps(recorder.record | {"lines": lines})
        (root / f"{case['name']}.json").write_text(record)


@guarded
def main() -> None:
    for case in json.loads(Path(sys.argv[1]).read_text()):
        train(case, Path(sys.argv[2]))


if __name__ == "__main__":
    main()
