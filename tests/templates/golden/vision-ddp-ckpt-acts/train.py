"""Train my-project, which reads handwritten digits: the loss, the steps, how it scales.

    torchrun --nproc-per-node=2 train.py    ddp over 2 ranks
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
from torch.distributed._composable.replicate import replicate
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.utils.data import DataLoader, DistributedSampler

from config import Config, ddp_config, single_config
from data import Digits
from dream_trainer import DreamTrainer
from dream_trainer.parallel.checkpointing import checkpoint_forward
from dream_trainer.utils.cli import cli
from model import Model


class Trainer(DreamTrainer):
    """Teaches `Model` which digit an image shows."""

    config: Config

    def configure_models(self) -> None:
        # Runs on the meta device: shapes only. A weight set or loaded here is lost.
        self.model = Model(self.config)

    def apply_activation_checkpointing(self) -> None:
        # A block keeps its input alone, and is computed again in the backward pass.
        for layer in self.model.layers:
            checkpoint_forward(layer)

    def apply_replicate(self, dp_replicate_mesh: DeviceMesh) -> None:
        replicate(self.model, device_mesh=dp_replicate_mesh)

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
    cli(main, {"ddp": ddp_config, "single": single_config})
