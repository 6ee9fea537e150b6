"""A small run to be killed: it draws from every random stream, and springs the traps it is given.

The environment says what to do: KILLED_CASE is a `Case` as JSON, KILLED_BY a list of `Trap`s.
The product knows nothing of them: `traps` patches it in the process to be killed.
"""

import dataclasses
import json
import os
import random
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed._composable.replicate import replicate
from torch.distributed.fsdp import fully_shard
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from dream_trainer import DreamTrainer, DreamTrainerConfig
from dream_trainer.callbacks import AsyncCheckpointCallback, CheckpointCallback, LoggerCallback
from dream_trainer.configs import (
    CheckpointParameters,
    Comm,
    DeviceParameters,
    LoggingParameters,
    TrainingParameters,
)
from dream_trainer.utils.cli import cli
from tests.runtime.traps import Trap, reach, set_traps

WIDTH = 8
BATCH = 4
KEPT = 2


@dataclass(frozen=True, kw_only=True)
class Case:
    """One way to run. The values that it logs must not depend on `behind` and `every`."""

    mesh: str = "single"
    """single, fsdp or ddp (2 ranks), hsdp (2 x 2)."""

    loader: str = "samples"
    """samples: a shuffled DataLoader; text: the `lm` recipe's; stream: of unknown length."""

    window: int = 1
    """Batches per optimizer step."""

    val_every: int | None = 4
    behind: bool = False
    every: int = 3
    steps: int = 24
    pause: float = 0.01
    """Seconds that a batch takes besides."""

    project: str = ""
    """A generated `lm` project, for its loader."""

    name: str | None = "run"

    @property
    def ranks(self) -> int:
        return {"single": 1, "fsdp": 2, "ddp": 2, "hsdp": 4}[self.mesh]

    def __str__(self) -> str:
        kind = "async" if self.behind else "sync"
        return f"{self.mesh} {kind} {self.loader} x{self.window} val {self.val_every or 'epoch'}"


def device_parameters(mesh: str) -> DeviceParameters:
    # Killed at its start, a rank is missed for so long, unless a launcher looks after it.
    comm = Comm(init_timeout_seconds=20, train_timeout_seconds=60)
    options: dict[str, Any] = {"compile_model": False, "param_dtype": "float32", "comm": comm}
    if mesh == "single":
        return DeviceParameters.SINGLE_DEVICE(**options)
    if mesh == "hsdp":
        return DeviceParameters(dp_replicate=2, dp_shard=2, **options)
    if mesh == "ddp":
        return DeviceParameters(dp_replicate=2, **options)
    return DeviceParameters(dp_shard=2, **options)


def configuration(case: Case) -> DreamTrainerConfig:
    saves = AsyncCheckpointCallback() if case.behind else CheckpointCallback()
    return DreamTrainerConfig(
        experiment=case.name,
        device_parameters=device_parameters(case.mesh),
        training_parameters=TrainingParameters(
            max_steps=case.steps,
            val_every_n_steps=case.val_every,
            gradient_accumulation_steps=case.window,
            gradient_clip_val=1.0,
        ),
        logging_parameters=LoggingParameters(log_every_n_steps=1),
        checkpoint_parameters=CheckpointParameters(
            checkpoint_every_n_steps=case.every, keep_top_k=KEPT
        ),
        callbacks=[LoggerCallback(), saves],
    )


class Model(nn.Module):
    """Three layers with dropout between them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.Linear(WIDTH, 32), nn.Linear(32, 32), nn.Linear(32, WIDTH)]
        )
        self.dropout = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.dropout(layer(x).tanh())
        return x


class Samples(Dataset[dict[str, Tensor]]):
    """`count` samples with noise from every stream of the process that reads them."""

    def __init__(self, count: int) -> None:
        values = torch.rand(count, 2, WIDTH, generator=torch.Generator().manual_seed(1))
        self.inputs, self.targets = values.unbind(1)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        noise = torch.rand(WIDTH) + random.random() + float(np.random.rand())
        return {"input": self.inputs[index] + 0.1 * noise, "target": self.targets[index]}


class Stream:
    """Batches without a length or a state: to be read again from the start of the epoch."""

    def __init__(self, count: int, rank: int) -> None:
        self.count, self.rank, self.epoch = count, rank, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        own = torch.Generator().manual_seed(1000 * self.epoch + self.rank)
        for _ in range(self.count):
            values = torch.rand(2, BATCH, WIDTH, generator=own) + 0.1 * torch.rand(1)
            yield {"input": values[0], "target": values[1]}


class Trainer(DreamTrainer):
    """Least squares, whose every value depends on all random streams of its rank."""

    def __init__(self, case: Case, config: DreamTrainerConfig) -> None:
        super().__init__(config)
        self.case = case

    def configure_models(self) -> None:
        self.model = Model()

    def apply_fully_shard(self, config: dict[str, Any]) -> None:
        for layer in self.model.layers:
            fully_shard(layer, **config)
        fully_shard(self.model, **config)

    def apply_replicate(self, dp_replicate_mesh: Any) -> None:
        replicate(self.model, device_mesh=dp_replicate_mesh)

    def configure_optimizers(self) -> dict[nn.Module, torch.optim.Optimizer]:
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        return {self.model: self.optimizer}

    def configure_schedulers(self) -> dict[torch.optim.Optimizer, LRScheduler]:
        return {self.optimizer: LambdaLR(self.optimizer, lambda step: 1 / (1 + 0.1 * step))}

    def configure_dataloaders(self) -> tuple[Iterable[Any], Iterable[Any]]:
        # About nine steps an epoch; the last window of most epochs is not full.
        ranks, rank = self.world.dp_size, self.world.dp_rank
        batches = 9 * self.case.window + 1
        held_out = self._loader(Samples(10 * ranks), shuffle=False)
        if self.case.loader == "stream":
            return Stream(batches, rank), held_out
        if self.case.loader == "text":
            return self._text(batches), held_out
        return self._loader(Samples(batches * BATCH * ranks - 3), shuffle=True), held_out

    def _loader(self, samples: Samples, shuffle: bool) -> DataLoader[dict[str, Tensor]]:
        ranks, rank = self.world.dp_size, self.world.dp_rank
        if ranks == 1:
            return DataLoader(samples, BATCH, shuffle=shuffle)
        sampler: DistributedSampler[dict[str, Tensor]] = DistributedSampler(
            samples, ranks, rank, shuffle=shuffle
        )
        return DataLoader(samples, BATCH, sampler=sampler)

    def _text(self, batches: int) -> Iterable[Any]:
        sys.path.insert(0, self.case.project)
        import config as sizes
        import data

        ranks = self.world.dp_size
        own = sizes.Config(seq_len=WIDTH, batch_size=BATCH)
        text = data.read_text(own)[: WIDTH * (batches * BATCH * ranks + 1)]
        loader: Iterable[Any] = data.TextBatches(
            text, own, rank=self.world.dp_rank, ranks=ranks, shuffle=True, drop_last=True
        )
        return loader

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> dict[str, Any]:
        time.sleep(self.case.pause)
        reach("step", self.global_step)
        scale = 1.0 if self.case.loader == "samples" else 1 / 256
        chance = 1 + 0.1 * random.random() + 0.1 * float(np.random.rand())
        predicted = self.model(scale * batch["input"].float())
        loss = chance * F.mse_loss(predicted, scale * batch["target"].float())
        self.backward(loss)
        rate = self.optimizer.param_groups[0]["lr"]
        return {"train/loss": loss, "train/lr": rate, "train/norm": self.step(self.optimizer)}

    @torch.no_grad()
    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> dict[str, Any]:
        if batch_idx == 1:
            reach("validation", self.global_step)
        chance = 0.01 * random.random() + 0.01 * torch.rand(())
        return {"val/loss": F.mse_loss(self.model(batch["input"]), batch["target"]) + chance}


def main() -> None:
    """Run as the environment says; the command line is that of any training script."""
    case = Case(**json.loads(os.environ["KILLED_CASE"]))
    set_traps([Trap(**trap) for trap in json.loads(os.environ.get("KILLED_BY", "[]"))])
    cli(lambda config: Trainer(case, config).fit(), configuration(case))


def environment(case: Case, traps: Iterable[Trap] = ()) -> dict[str, str]:
    """What `main` reads."""
    return {
        "KILLED_CASE": json.dumps(dataclasses.asdict(case)),
        "KILLED_BY": json.dumps([dataclasses.asdict(trap) for trap in traps]),
    }


if __name__ == "__main__":
    main()
