"""Train my-project, a language model on bytes: the loss, the steps, how it scales.

    torchrun --nproc-per-node=2 train.py    fsdp over 2 ranks
    python train.py --config single         one device, no launcher
    python train.py --cfg                   print the resolved config and exit
    dream check                             do the hooks match config.py?

The sizes are in config.py, the model in model.py, the text in data.py. The hooks of
`Trainer` stand in the order in which the runtime calls them.
"""

import math
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from config import Config, fsdp_config, single_config
from data import TextBatches, split_text
from dream_trainer import DreamTrainer
from dream_trainer.utils.cli import cli
from model import Model, llama_layout


class Trainer(DreamTrainer):
    """Teaches `Model` to predict the next byte."""

    config: Config
    item = "tokens"

    def configure_models(self) -> None:
        # Runs on the meta device: shapes only. A weight set or loaded here is lost.
        self.model = Model(self.config)

    def apply_fully_shard(self, config: dict[str, Any]) -> None:
        # Blocks first, the root last: it takes what no block has claimed.
        for layer in self.model.layers:
            fully_shard(layer, **config)
        fully_shard(self.model, **config)

    def init_weights(self) -> None:
        self.model.init_weights()

    def configure_optimizers(self) -> dict[nn.Module, torch.optim.Optimizer]:
        matrices = [weight for weight in self.model.parameters() if weight.ndim >= 2]
        vectors = [weight for weight in self.model.parameters() if weight.ndim < 2]
        self.optimizer = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": self.config.weight_decay},
                {"params": vectors, "weight_decay": 0.0},
            ],
            lr=self.config.learning_rate,
            betas=(0.9, 0.95),
            fused=True,
        )
        return {self.model: self.optimizer}

    def configure_schedulers(self) -> dict[torch.optim.Optimizer, LRScheduler]:
        return {self.optimizer: LambdaLR(self.optimizer, self.learning_rate_factor)}

    def learning_rate_factor(self, step: int) -> float:
        """A linear warm-up, then a cosine from 1 down to 0.1 at the end of the run."""
        warmup, total = self.config.warmup_steps, self.config.max_steps
        if step < warmup:
            return (step + 1) / warmup
        progress = min((step - warmup) / max(total - warmup, 1), 1.0)
        return 0.55 + 0.45 * math.cos(math.pi * progress)

    def configure_dataloaders(self) -> tuple[Iterable[Any], Iterable[Any]]:
        train, held_out = split_text(self.config)
        # Split by data-parallel rank: ranks that share a model must read the same batches.
        rank, ranks = self.world.dp_rank, self.world.dp_size
        # A pipeline cuts every batch into equal parts: there, no short one at the end.
        full = self.world.axes.pp > 1
        return (
            TextBatches(train, self.config, rank=rank, ranks=ranks, shuffle=True, drop_last=True),
            TextBatches(
                held_out, self.config, rank=rank, ranks=ranks, shuffle=False, drop_last=full
            ),
        )

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> dict[str, Any]:
        loss = self.pipeline(self.model, batch["input"], target=batch["target"], loss=self.loss)
        self.backward(loss)  # not loss.backward(): this one knows about accumulation
        return {
            "train/loss": loss,
            "train/bits_per_byte": loss / math.log(2),
            "train/grad_norm": self.step(self.optimizer),
        }

    @torch.no_grad()
    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> dict[str, Any]:
        loss = self.pipeline(self.model, batch["input"], target=batch["target"], loss=self.loss)
        return {"val/loss": loss, "val/bits_per_byte": loss / math.log(2)}

    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        """Mean cross-entropy of the next byte, in nats."""
        # In float32: bfloat16 keeps too few digits for a sum of exponentials.
        return F.cross_entropy(logits.float().flatten(0, 1), target.flatten())

    def count_items(self, batch: dict[str, Tensor]) -> int:
        return batch["target"].numel()

    def model_state_dict(self, **_: Any) -> dict[str, Any]:
        # Checkpoints in this form can be loaded on another mesh.
        return {"model": get_model_state_dict(self.model)}

    def hugging_face_layout(self) -> tuple[dict[str, str], dict[str, Any]]:
        return llama_layout(self.config)


def main(config: Config) -> None:
    Trainer(config).fit()


if __name__ == "__main__":
    cli(main, {"fsdp": fsdp_config, "single": single_config})
