"""Trains with an average of the weights on one mesh after the other; `test_ema` judges.

    torchrun --nproc-per-node=2 ema_cases.py FOLDER

Rank 0 writes FOLDER/told.pt: for every mesh the losses with and without the average, and the
average itself. The run of fsdp saves, and each other mesh goes on from there.
"""

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from dream_trainer.callbacks import Callback, CheckpointCallback, EMACallback
from dream_trainer.checkpoint.state import model_state
from dream_trainer.configs import CheckpointParameters, DeviceParameters, TrainingParameters
from dream_trainer.utils.entrypoint import guarded
from tests.runtime import sized
from tests.runtime.sized import FLOAT32

STEPS = 3

MESHES: dict[str, dict[str, Any]] = {
    "fsdp": {"dp_shard": 2},
    "fsdp, kept gathered": {"dp_shard": 2},
    "ddp": {"dp_replicate": 2},
    "tp": {"tensor_parallel": 2},
    "pp": {"pipeline_parallel": 2},
    "interleaved": {"pipeline_parallel": 2, "pipeline_schedule": "Interleaved1F1B"},
}


class Trainer(sized.Trainer):
    """Validates after each step, on the same batch everywhere."""

    keeps_gathered = False

    def apply_fully_shard(self, config: dict[str, Any]) -> None:
        if self.keeps_gathered:
            config |= {"reshard_after_forward": False}
        for layer in self.model.layers:
            fully_shard(layer, **config)
        fully_shard(self.model, **config)

    def configure_optimizers(self) -> Any:
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.03)
        return {self.model: self.optimizer}

    def configure_dataloaders(self) -> Any:
        return super().configure_dataloaders()[0], [held_out()]

    def validation_step(self, batch: Tensor, batch_idx: int) -> dict[str, Any]:
        loss = self.pipeline(self.model, batch, target=batch, loss=sized.next_token)
        return {"val/loss": loss}


def held_out() -> Tensor:
    draws = torch.Generator().manual_seed(99)
    return torch.randint(sized.VOCABULARY, (8, sized.SEQUENCE), generator=draws)


class Watch(Callback):
    """Keeps the losses."""

    def __init__(self) -> None:
        self.train: list[float] = []
        self.val: list[float] = []

    def post_train_step(self, trainer: Any, result: Any, batch: Any, batch_idx: int) -> None:
        self.train.append(float(result["train/loss"]))

    def post_validation_epoch(self, trainer: Any, result: dict[str, float]) -> None:
        self.val.append(result["val/loss"])


def make(
    mesh: dict[str, Any], callbacks: list[Callback], folder: Path | None = None, **fields: Any
) -> Trainer:
    """A trainer of that mesh; it saves at the end, or goes on from what was saved, in `folder`."""
    config = sized.config(
        DeviceParameters(**FLOAT32, **mesh), callbacks=callbacks, experiment="run"
    )
    config.training_parameters = TrainingParameters(max_steps=STEPS, val_every_n_steps=1)
    if folder is not None:
        config.checkpoint_parameters = CheckpointParameters(root_dir=str(folder), **fields)
    return Trainer(config)


def whole(tensors: dict[str, Any]) -> dict[str, Tensor]:
    """Every tensor, put together from all ranks."""
    own = {
        name: tensor.full_tensor() if isinstance(tensor, DTensor) else tensor.clone()
        for name, tensor in tensors.items()
    }
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return own
    everyone: list[dict[str, Tensor]] = [{}, {}]
    dist.all_gather_object(everyone, own)
    return everyone[0] | everyone[1]


def train(name: str, folder: Path) -> dict[str, Any]:
    average, watch, without = EMACallback(decay=0.5), Watch(), Watch()
    saved = folder if name == "fsdp" else None
    saving = [CheckpointCallback()] if saved else []
    trainer = make(MESHES[name], [average, watch, *saving], saved)
    plain = make(MESHES[name], [without])
    trainer.keeps_gathered = plain.keeps_gathered = "gathered" in name
    trainer.fit()
    plain.fit()
    told = {
        "train": watch.train,
        "val": watch.val,
        "train without": without.train,
        "val without": without.val,
        "average": whole(average.ema_state_dict(trainer)),
        "weights": whole(model_state(trainer)),
        "weights without": whole(model_state(plain)),
    }
    return told | {"resumed": resumed(name, folder)}


def resumed(name: str, folder: Path) -> dict[str, Tensor]:
    """The average as this mesh reads what fsdp saved."""
    average = EMACallback(decay=0.5)
    trainer = make(MESHES[name], [average], folder, enable=False, resume="run")
    trainer.fit()
    if trainer.start_step != STEPS or average.updates != STEPS:
        raise ValueError(f"{name}: resumed at {trainer.start_step}, {average.updates} updates")
    return whole(average.averages)


@guarded
def main() -> None:
    folder = Path(sys.argv[1])
    told = {name: train(name, folder) for name in MESHES}
    if dist.get_rank() == 0:
        torch.save(told, folder / "told.pt")


if __name__ == "__main__":
    main()
