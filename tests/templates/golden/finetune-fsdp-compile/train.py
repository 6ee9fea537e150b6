"""Train my-project: a causal language model of the hub, tuned on prompts and answers.

    torchrun --nproc-per-node=2 train.py    fsdp over 2 ranks
    python train.py --config single         one device, no launcher
    python train.py --cfg                   print the resolved config and exit
    dream check                             do the hooks match config.py?
    python merge.py runs/RUN folder         the tuned model, for transformers

Model and data are named in config.py, the low-rank updates are in model.py. The hooks of
`Trainer` stand in the order in which the runtime calls them.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler

from config import Config, fsdp_config, single_config
from data import IGNORED, Examples, collate
from dream_trainer import DreamTrainer
from dream_trainer.checkpoint.weights import load_weights
from dream_trainer.utils.cli import cli
from model import LoRALinear, build, model_folder


class Trainer(DreamTrainer):
    """Teaches a language model the answers to prompts."""

    config: Config
    item = "tokens"

    def configure_models(self) -> None:
        # Runs on the meta device: shapes only. The weights come in `init_weights`.
        self.model = build(self.config)

    def apply_compile(self) -> None:
        # Block by block and in place: the blocks share one graph, and no name changes.
        for layer in self.model.get_decoder().layers:
            layer.compile()

    def apply_fully_shard(self, config: dict[str, Any]) -> None:
        # Blocks first, the root last: it takes what no block has claimed.
        for layer in self.model.get_decoder().layers:
            fully_shard(layer, **config)
        fully_shard(self.model, **config)

    def init_weights(self) -> None:
        # What no checkpoint holds first: tables of positions, and the updates.
        for module in self.model.modules():
            self.model._init_weights(module)
            if isinstance(module, LoRALinear):
                module.reset_update()
        # Each rank reads its own part of the weights.
        folder = model_folder(self.config.model)
        load_weights(self, str(folder), allow_missing=("*.lora_a", "*.lora_b"))

    def configure_optimizers(self) -> dict[nn.Module, torch.optim.Optimizer]:
        trained = [weight for weight in self.model.parameters() if weight.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=self.config.learning_rate, fused=True)
        return {self.model: self.optimizer}

    def configure_dataloaders(self) -> tuple[Iterable[Any], Iterable[Any]]:
        return self.loader(held_out=False), self.loader(held_out=True)

    def loader(self, *, held_out: bool) -> DataLoader[Any]:
        examples = Examples(self.config, held_out=held_out)
        return DataLoader(
            examples,
            collate_fn=partial(collate, seq_len=self.config.seq_len),
            batch_size=self.config.batch_size,
            # Without rank and size every rank reads the same batches, and nothing complains.
            sampler=DistributedSampler(
                examples,
                num_replicas=self.world.dp_size,
                rank=self.world.dp_rank,
                shuffle=not held_out,
                seed=self.config.seed,
            ),
            drop_last=not held_out,
        )

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        loss, count = self.loss(batch), batch["count"]
        # A sum and what it counts: every token weighs alike, however long its answer is.
        self.backward(loss, num_items=count)
        return {"train/loss": loss / count, "train/grad_norm": self.step(self.optimizer)}

    @torch.no_grad()
    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        return {"val/loss": self.loss(batch) / batch["count"]}

    def loss(self, batch: dict[str, Any]) -> Tensor:
        """The cross-entropy of all tokens of answers together, in nats."""
        logits = self.model(
            input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False
        ).logits
        labels = batch["labels"][:, 1:].flatten()
        # In float32: bfloat16 keeps too few digits for a sum of exponentials.
        predicted = logits[:, :-1].float().flatten(0, 1)
        return F.cross_entropy(predicted, labels, ignore_index=IGNORED, reduction="sum")

    def count_items(self, batch: dict[str, Any]) -> int:
        return batch["count"]

    def model_state_dict(self, **_: Any) -> dict[str, Any]:
        # Checkpoints in this form can be loaded on another mesh.
        return {"model": get_model_state_dict(self.model)}


def main(config: Config) -> None:
    Trainer(config).fit()


if __name__ == "__main__":
    cli(main, {"fsdp": fsdp_config, "single": single_config})
