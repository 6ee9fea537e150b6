"""Train my-project, which reads handwritten digits: the loss, the steps, how it scales.

    torchrun --nproc-per-node=4 train.py    fsdp+tp over 4 ranks
    python train.py --config single         one device, no launcher
    python train.py --cfg                   print the resolved config and exit
    dream check                             do the hooks match config.py?

The sizes are in config.py, the model in model.py, the images in data.py. The hooks of
`Trainer` stand in the order in which the runtime calls them.
"""

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)
from torch.utils.data import DataLoader, DistributedSampler

from config import Config, fsdp_tp_config, single_config
from data import Digits
from dream_trainer import DreamTrainer
from dream_trainer.utils.cli import cli
from model import Model


class Trainer(DreamTrainer):
    """Teaches `Model` which digit an image shows."""

    config: Config

    def configure_models(self) -> None:
        # Runs on the meta device: shapes only. A weight set or loaded here is lost.
        self.model = Model(self.config)

    def apply_tensor_parallel(self, tp_mesh: DeviceMesh) -> None:
        # Each rank takes a share of the heads and of the hidden units; what lies between
        # the blocks is whole on all of them.
        plan: dict[str, ParallelStyle] = {
            "attention.query": ColwiseParallel(),
            "attention.key": ColwiseParallel(),
            "attention.value": ColwiseParallel(),
            "attention.out": RowwiseParallel(),
            "feed_forward.up": ColwiseParallel(),
            "feed_forward.down": RowwiseParallel(),
        }
        for layer in self.model.layers:
            parallelize_module(layer, tp_mesh, plan)

    def apply_fully_shard(self, config: dict[str, Any]) -> None:
        # Blocks first, the root last: it takes what no block has claimed.
        for layer in self.model.layers:
            fully_shard(layer, **config)
        fully_shard(self.model, **config)

    def init_weights(self) -> None:
        self.model.init_weights()

    def configure_optimizers(self) -> dict[nn.Module, torch.optim.Optimizer]:
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=self.config.learning_rate,
            weight_decay=self.config.weight_decay,
            fused=True,
        )
        return {self.model: self.optimizer}

    def configure_dataloaders(self) -> tuple[Iterable[Any], Iterable[Any]]:
        return self.loader(held_out=False), self.loader(held_out=True)

    def loader(self, *, held_out: bool) -> DataLoader[dict[str, Tensor]]:
        images = Digits(self.config, held_out=held_out)
        return DataLoader(
            images,
            batch_size=self.config.batch_size,
            # Without rank and size every rank reads the same batches, and nothing complains.
            sampler=DistributedSampler(
                images,
                num_replicas=self.world.dp_size,
                rank=self.world.dp_rank,
                shuffle=not held_out,
                seed=self.config.seed,
            ),
            drop_last=not held_out,
        )

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> dict[str, Any]:
        loss = F.cross_entropy(self.model(batch["image"]).float(), batch["label"])
        self.backward(loss)  # not loss.backward(): this one knows about accumulation
        return {"train/loss": loss, "train/grad_norm": self.step(self.optimizer)}

    @torch.no_grad()
    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> dict[str, Any]:
        logits = self.model(batch["image"]).float()
        hits = logits.argmax(-1) == batch["label"]
        return {
            "val/loss": F.cross_entropy(logits, batch["label"]),
            "val/accuracy": hits.float().mean(),
        }

    def model_state_dict(self, **_: Any) -> dict[str, Any]:
        # Checkpoints in this form can be loaded on another mesh.
        return {"model": get_model_state_dict(self.model)}


def main(config: Config) -> None:
    Trainer(config).fit()


if __name__ == "__main__":
    cli(main, {"fsdp+tp": fsdp_tp_config, "single": single_config})
