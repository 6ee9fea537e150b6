"""The framework description's code samples, as written, and what each leaves to the reader.

    torchrun --nproc-per-node=2 framework_samples.py NAME...

A sample's `DreamTrainer` is `Rest`: it defines the hooks that the sample does not show.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "runtime"))

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

from dream_trainer import DreamTrainer, DreamTrainerConfig, callbacks
from dream_trainer.configs import DeviceParameters, LoggingParameters, TrainingParameters
from dream_trainer.utils.entrypoint import entrypoint

DDP = """
from torch.distributed._composable.replicate import replicate
from torch.utils.data import DataLoader, DistributedSampler

config = MyTrainerConfig(
    device_parameters=DeviceParameters.DDP(),
    training_parameters=TrainingParameters(n_epochs=1, train_steps_per_epoch=200),
)


class MyTrainer(DreamTrainer):
    def apply_compile(self):
        self.model.compile(mode="max-autotune-no-cudagraphs", dynamic=False)

    def apply_replicate(self, dp_replicate_mesh):
        replicate(self.model, device_mesh=dp_replicate_mesh)

    def configure_dataloaders(self):
        sampler = DistributedSampler(
            self.dataset,
            num_replicas=self.world.dp_size,
            rank=self.world.dp_rank,
            shuffle=True,
        )
        train_loader = DataLoader(self.dataset, batch_size=self.config.batch_size, sampler=sampler)
        return train_loader, train_loader
"""

FSDP = """
from torch.distributed.fsdp import fully_shard

config = MyTrainerConfig(
    device_parameters=DeviceParameters.FSDP(
        compile_model=False,
        async_tensor_parallel=False,
    ),
    training_parameters=TrainingParameters(n_epochs=1, train_steps_per_epoch=50),
)


class MyTrainer(DreamTrainer):
    def apply_fully_shard(self, config):
        for layer in self.model.layers:
            fully_shard(layer, **config)
        fully_shard(self.model, **config)
"""

STATE_DICT = """
from typing import Any

from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict


def model_state_dict(self, **_: Any) -> dict[str, Any]:
    return {
        "model": get_model_state_dict(
            self.model,
            options=StateDictOptions(),
        )
    }
"""

QUICK = """
from dream_trainer import DreamTrainer

class MyTrainer(DreamTrainer):
    def configure_models(self):
        self.model = MyModel(self.config.model)

    def configure_optimizers(self):
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.config.lr)
        return {self.model: self.optimizer}

    def training_step(self, batch, batch_idx):
        logits = self.model(batch["input"])
        loss = F.cross_entropy(logits, batch["target"])
        self.backward(loss)
        return {"train/loss": loss, "train/grad_norm": self.step(self.optimizer)}
"""

IMPORTS = """
from dream_trainer import DreamTrainer, DreamTrainerConfig, callbacks
from dream_trainer.configs import (
    CheckpointParameters,
    DeviceParameters,
    TrainingParameters,
    WandbLoggingParameters,
)
from dream_trainer.utils.entrypoint import entrypoint
"""


class MyModel(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.head = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + F.relu(layer(x))
        return self.head(x)


class Clusters(Dataset[dict[str, torch.Tensor]]):
    def __init__(self, size: int) -> None:
        draws = torch.Generator().manual_seed(0)
        self.target = torch.randint(4, (size,), generator=draws)
        self.input = F.one_hot(self.target, 8) + torch.randn(size, 8, generator=draws) / 4

    def __len__(self) -> int:
        return len(self.target)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input": self.input[index], "target": self.target[index]}


@dataclass(kw_only=True)
class MyTrainerConfig(DreamTrainerConfig):
    batch_size: int = 8
    model: int = 8
    lr: float = 1e-2


class Rest(DreamTrainer):
    """What the samples leave out."""

    config: MyTrainerConfig

    def __init__(self, config: MyTrainerConfig) -> None:
        super().__init__(config)
        self.dataset = Clusters(3200)

    def configure_models(self) -> None:
        self.model = MyModel(self.config.model)

    def configure_optimizers(self) -> dict[nn.Module, torch.optim.Optimizer]:
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.config.lr)
        return {self.model: self.optimizer}

    def configure_dataloaders(self) -> Any:
        return DataLoader(self.dataset, batch_size=self.config.batch_size), None

    def training_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> dict[str, Any]:
        loss = F.cross_entropy(self.model(batch["input"]), batch["target"])
        self.backward(loss)
        return {"train/loss": loss, "train/grad_norm": self.step(self.optimizer)}


class Losses(callbacks.Callback):
    """Keeps the first and the newest loss."""

    logs = True

    def __init__(self) -> None:
        self.seen: list[float] = []

    def post_train_step(self, trainer: Any, result: Any, batch: Any, batch_idx: int) -> None:
        self.seen.append(float(result["train/loss"]))


def run(name: str) -> None:
    """Run one sample to its end, and prove that it trained."""
    space: dict[str, Any] = {**globals(), "DreamTrainer": Rest, "MyTrainerConfig": MyTrainerConfig}
    for sample in SAMPLES[name]:
        exec(sample, space)
    if name == "imports":
        return
    if name == "quick":  # It imports the real DreamTrainer: the rest comes after it.
        space["MyTrainer"] = type("MyTrainer", (space["MyTrainer"], Rest), {})
        space["config"] = MyTrainerConfig(
            device_parameters=DeviceParameters.FSDP(compile_model=False, force_ddp=True),
            training_parameters=TrainingParameters(max_steps=50),
        )
        space["MyTrainer"].apply_replicate = replicate_model
    if name == "state_dict":
        space["MyTrainer"].model_state_dict = space["model_state_dict"]
    losses = Losses()
    config = space["config"]
    config.callbacks = [losses]
    config.logging_parameters = LoggingParameters(enabled=False)
    trainer = space["MyTrainer"](config)
    trainer.fit()
    first, last = sum(losses.seen[:5]) / 5, sum(losses.seen[-5:]) / 5
    if last > 0.5 * first:
        raise RuntimeError(f"{name} did not learn: {first} -> {last}")
    if name == "state_dict" and set(trainer.model_state_dict()["model"]) != set(
        dict(trainer.model.named_parameters())
    ):
        raise RuntimeError("model_state_dict names other parameters than the model")
    if trainer.world.is_rank_zero:
        print(f"{name}: {len(losses.seen)} steps, loss {first:.2f} -> {last:.2f}")


def replicate_model(self: Any, dp_replicate_mesh: Any) -> None:
    from torch.distributed._composable.replicate import replicate

    replicate(self.model, device_mesh=dp_replicate_mesh)


SAMPLES = {
    "imports": [IMPORTS],
    "fsdp": [FSDP],
    "state_dict": [FSDP, STATE_DICT],
    "quick": [QUICK],
    "ddp": [DDP],
}


@entrypoint
def main() -> None:
    for name in sys.argv[1:]:
        run(name)


if __name__ == "__main__":
    main()
