"""Train my-project: the model, the data and the loss. Scale is in config.py.

    python train.py                         one device
    python train.py --cfg                   print the resolved config and exit
    dream check                             do the hooks match config.py?

The hooks of `Trainer` stand in the order in which the runtime calls them.
"""

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from config import Config, single_config
from dream_trainer import DreamTrainer
from dream_trainer.parallel.checkpointing import checkpoint_forward
from dream_trainer.utils.cli import cli


class Model(nn.Module):
    """Residual blocks over a feature vector, (batch, input_dim) to (batch, num_classes)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed = nn.Linear(config.input_dim, config.hidden_dim)
        self.layers = nn.ModuleList(Block(config.hidden_dim) for _ in range(config.num_layers))
        self.head = nn.Linear(config.hidden_dim, config.num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Block(nn.Module):
    """A feed-forward network beside the residual stream."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Clusters(Dataset[dict[str, Tensor]]):
    """Points scattered round one centre a class, so that the loss has somewhere to fall."""

    def __init__(self, config: Config, *, size: int, seed: int) -> None:
        # Both splits know the same centres; only their draws differ.
        shared, draws = torch.Generator().manual_seed(0), torch.Generator().manual_seed(seed)
        centers = torch.randn(config.num_classes, config.input_dim, generator=shared)
        self.target = torch.randint(config.num_classes, (size,), generator=draws)
        noise = torch.randn(size, config.input_dim, generator=draws)
        self.input = centers[self.target] + noise

    def __len__(self) -> int:
        return len(self.target)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input": self.input[index], "target": self.target[index]}


class Trainer(DreamTrainer):
    """Classifies with `Model`."""

    config: Config

    def configure_models(self) -> None:
        # Runs on the meta device: shapes only. A weight set or loaded here is lost.
        self.model = Model(self.config)

    def apply_activation_checkpointing(self) -> None:
        # A block keeps its input alone, and is computed again in the backward pass.
        for layer in self.model.layers:
            checkpoint_forward(layer)

    def init_weights(self) -> None:
        # The memory is real from here on, and holds garbage: reset every module.
        for module in self.model.modules():
            if callable(reset := getattr(module, "reset_parameters", None)):
                reset()

    def configure_optimizers(self) -> dict[nn.Module, torch.optim.Optimizer]:
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=self.config.learning_rate, fused=True
        )
        return {self.model: self.optimizer}

    def configure_dataloaders(self) -> tuple[Iterable[Any], Iterable[Any]]:
        train = self.loader(size=self.config.num_samples, seed=1)
        return train, self.loader(size=self.config.num_samples // 16, seed=2)

    def loader(self, *, size: int, seed: int) -> DataLoader[dict[str, Tensor]]:
        examples = Clusters(self.config, size=size, seed=seed)
        return DataLoader(
            examples,
            batch_size=self.config.batch_size,
            # Without rank and size every rank reads the same batches, and nothing complains.
            sampler=DistributedSampler(
                examples, num_replicas=self.world.dp_size, rank=self.world.dp_rank
            ),
            drop_last=True,
        )

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> dict[str, Any]:
        loss = F.cross_entropy(self.model(batch["input"]).float(), batch["target"])
        self.backward(loss)  # not loss.backward(): this one knows about accumulation
        return {"train/loss": loss, "train/grad_norm": self.step(self.optimizer)}

    @torch.no_grad()
    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> dict[str, Any]:
        logits = self.model(batch["input"]).float()
        hits = logits.argmax(-1) == batch["target"]
        return {
            "val/loss": F.cross_entropy(logits, batch["target"]),
            "val/accuracy": hits.float().mean(),
        }

    def model_state_dict(self, **_: Any) -> dict[str, Any]:
        # Checkpoints in this form can be loaded on another mesh.
        return {"model": get_model_state_dict(self.model)}


def main(config: Config) -> None:
    Trainer(config).fit()


if __name__ == "__main__":
    cli(main, {"single": single_config})
