"""A small trainer on data that a test gives, and the configuration for it."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed._composable.replicate import replicate
from torch.distributed.fsdp import fully_shard

from dream_trainer import DreamTrainer, DreamTrainerConfig, lifecycle
from dream_trainer.callbacks import Callback, CallbackCollection
from dream_trainer.configs import DeviceParameters, LoggingParameters, TrainingParameters

Batch = dict[str, Tensor]
T = TypeVar("T", bound=DreamTrainer)


class Model(nn.Module):
    """Two layers, so that a sharded one has a block and a root."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 2)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).tanh()
        return x


class TinyTrainer(DreamTrainer):
    """Least squares by plain gradient descent."""

    learning_rate = 0.5

    def __init__(
        self,
        config: DreamTrainerConfig,
        train: Iterable[Any] = (),
        val: Iterable[Any] | None = None,
    ) -> None:
        super().__init__(config)
        self.train_data, self.val_data = train, val

    def configure_models(self) -> None:
        self.model = Model()

    def apply_fully_shard(self, config: dict[str, Any]) -> None:
        for layer in self.model.layers:
            fully_shard(layer, **config)
        fully_shard(self.model, **config)

    def apply_replicate(self, dp_replicate_mesh: Any) -> None:
        replicate(self.model, device_mesh=dp_replicate_mesh)

    def configure_optimizers(self) -> dict[nn.Module, torch.optim.Optimizer]:
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=self.learning_rate)
        return {self.model: self.optimizer}

    def configure_dataloaders(self) -> tuple[Iterable[Any], Iterable[Any] | None]:
        return self.train_data, self.val_data

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        loss = F.mse_loss(self.model(batch["x"]), batch["y"])
        self.backward(loss)
        return {"train/loss": loss, "train/grad_norm": self.step(self.optimizer)}

    def validation_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        return {"val/loss": F.mse_loss(self.model(batch["x"]), batch["y"])}


def batches(number: int, rows: int = 2, seed: int = 0) -> list[Batch]:
    """`number` random batches of `rows` rows."""
    draws = torch.Generator().manual_seed(seed)
    return [
        {
            "x": torch.randn(rows, 4, generator=draws),
            "y": torch.randn(rows, 2, generator=draws),
        }
        for _ in range(number)
    ]


def joined(parts: Sequence[Batch]) -> Batch:
    """The rows of several batches as one batch."""
    return {key: torch.cat([part[key] for part in parts]) for key in parts[0]}


def config(
    device: DeviceParameters | None = None,
    callbacks: Sequence[Callback] = (),
    logging: LoggingParameters | None = None,
    **training: Any,
) -> DreamTrainerConfig:
    """One device, float32, no callbacks and no log, unless said otherwise."""
    return DreamTrainerConfig(
        device_parameters=device or single(),
        training_parameters=TrainingParameters(**training),
        logging_parameters=logging or LoggingParameters(enabled=False),
        callbacks=list(callbacks),
    )


def single(**options: Any) -> DeviceParameters:
    return DeviceParameters.SINGLE_DEVICE(**(FLOAT32 | options))


FLOAT32: dict[str, Any] = {"compile_model": False, "param_dtype": "float32"}


def set_up(trainer: T) -> T:
    """Everything that `fit` does before its first step."""
    trainer.callbacks = CallbackCollection(trainer.config.callbacks or ())
    lifecycle.set_up(trainer)
    return trainer
