"""A small transformer with every hook, for dry runs and for the real runs they are held against.

torchrun --nproc-per-node=2 sized.py --config fsdp     each rank prints what it really holds
"""

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed._composable.replicate import replicate
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from dream_trainer import DreamTrainer, DreamTrainerConfig
from dream_trainer.callbacks import Callback
from dream_trainer.configs import DeviceParameters, LoggingParameters, TrainingParameters
from dream_trainer.lifecycle import named_parts
from dream_trainer.parallel.pipeline import cut_model, present
from dream_trainer.simulate.meter import Meter, storages
from dream_trainer.utils.cli import cli
from dream_trainer.utils.entrypoint import guarded

VOCABULARY, SEQUENCE = 64, 16


class Block(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.head_dim = dim // heads
        self.norm = nn.RMSNorm(dim)
        self.query = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)
        self.up = nn.Linear(dim, 3 * dim)
        self.down = nn.Linear(3 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.query(self.norm(x)).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(x)))


class Model(nn.Module):
    def __init__(self, config: "Config") -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, config.dim)
        blocks = (Block(config.dim, config.heads) for _ in range(config.layers))
        self.layers = nn.ModuleList(blocks)
        self.head = nn.Linear(config.dim, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Trainer(DreamTrainer):
    config: "Config"

    def configure_models(self) -> None:
        self.model = Model(self.config)

    def apply_pipeline_parallel(self, pp_mesh: Any) -> Any:
        cut = cut_model(
            self.model, pp_mesh, self.world, layers="layers", first=["embed"], last=["head"]
        )
        return {"model": cut}

    def apply_tensor_parallel(self, tp_mesh: Any) -> None:
        plan = {
            "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
        }
        parallelize_module(self.model, tp_mesh, present(self.model, plan))
        for layer in self.model.layers:
            parallelize_module(layer, tp_mesh, self.plan())

    def plan(self) -> dict[str, Any]:
        return {
            "norm": SequenceParallel(),
            "query": ColwiseParallel(input_layouts=Shard(1)),
            "out": RowwiseParallel(output_layouts=Shard(1)),
            "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Shard(1)),
        }

    def context_parallel_buffers(self, batch: Tensor) -> list[tuple[Tensor, int]]:
        return [(batch, 1)]

    def apply_fully_shard(self, config: dict[str, Any]) -> None:
        for layer in self.model.layers:
            fully_shard(layer, **config)
        fully_shard(self.model, **config)

    def apply_replicate(self, dp_replicate_mesh: Any) -> None:
        replicate(self.model, device_mesh=dp_replicate_mesh)

    def configure_optimizers(self) -> dict[nn.Module, torch.optim.Optimizer]:
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        return {self.model: self.optimizer}

    def configure_dataloaders(self) -> Any:
        draws = torch.Generator().manual_seed(self.world.dp_rank)
        shape = (self.config.rows, SEQUENCE)
        return [torch.randint(VOCABULARY, shape, generator=draws) for _ in range(4)], None

    def training_step(self, batch: Tensor, batch_idx: int) -> dict[str, Any]:
        loss = self.pipeline(self.model, batch, target=batch, loss=next_token)
        self.backward(loss)
        return {"train/loss": loss, "train/grad_norm": self.step(self.optimizer)}


def next_token(logits: Tensor, tokens: Tensor) -> Tensor:
    return F.cross_entropy(logits.float().flatten(0, 1), tokens.flatten())


@dataclasses.dataclass(kw_only=True)
class Config(DreamTrainerConfig):
    dim: int = 32
    heads: int = 4
    layers: int = 4
    rows: int = 8


def config(device: DeviceParameters, **fields: Any) -> Config:
    return Config(
        device_parameters=device,
        training_parameters=TrainingParameters(max_steps=2, gradient_clip_val=1.0),
        logging_parameters=LoggingParameters(enabled=False),
        **fields,
    )


class Measure(Callback):
    """The bytes of a real second step, with the dry run's meter and without it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def pre_fit(self, trainer: Any) -> None:
        self.meter = Meter()
        self.saved: dict[int, int] = {}
        self.told: dict[str, Any] = {}
        self.parameters = [p for _, model in named_parts(trainer) for p in model.parameters()]
        for tensor in self.parameters:
            self.meter.hold(tensor, "model")
        self.told["parameters"] = sum(
            getattr(p, "_local_tensor", p).nbytes for p in self.parameters
        )

    @contextmanager
    def train_context(self, trainer: Any) -> Iterator[None]:
        def keep(tensor: Tensor) -> Tensor:
            if self.meter.kind_of(tensor) not in ("model", "gathered"):
                for storage in storages([tensor]):
                    self.saved[storage._cdata] = storage.nbytes()
            return tensor

        with self.meter, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            yield

    def pre_train_step(self, trainer: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx == 1:
            state = [v for s in trainer.optimizer.state.values() for v in s.values()]
            for tensor in state:
                self.meter.hold(tensor, "optimizer", again=True)
            self.told["optimizer"] = sum(getattr(v, "_local_tensor", v).nbytes for v in state)
        self.saved.clear()
        self.meter.restart()

    def pre_optimizer_step(self, trainer: Any, optimizer: Any) -> None:
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        self.told["gradients"] = sum(getattr(g, "_local_tensor", g).nbytes for g in gradients)
        self.told["saved"] = sum(self.saved.values())
        for gradient in gradients:
            self.meter.hold(gradient, "gradients", again=True)
        self.meter.in_optimizer = True

    def post_optimizer_step(self, trainer: Any, optimizer: Any) -> None:
        self.meter.in_optimizer = False

    def post_fit(self, trainer: Any) -> None:
        meter = self.meter
        self.told |= {
            "name": self.name,
            "rank": trainer.world.rank,
            "activations": meter.peaks["activations"],
            "gathered": meter.peaks["gathered"],
            "peak": meter.fullest.total(),
            "collectives": sorted(
                [collective.operation, count, meter.bytes[collective]]
                for collective, count in meter.counts.items()
            ),
        }
        print(f"\n{json.dumps(self.told)}\n", flush=True, end="")


FLOAT32: dict[str, Any] = {"compile_model": False, "param_dtype": "float32"}

DEVICES = {
    "fsdp": DeviceParameters.FSDP(**FLOAT32),
    "ddp": DeviceParameters.DDP(**FLOAT32),
    "tp": DeviceParameters(tensor_parallel=2, **FLOAT32),
}

CONFIGS: dict[str, Callable[[], Config]] = {
    name: partial(config, device) for name, device in DEVICES.items()
}


def main(config: Config) -> None:
    Trainer(config).fit()


def measure() -> None:
    """Run every configuration in one process group. All ranks take part."""
    for name, device in DEVICES.items():
        main(config(device, callbacks=[Measure(name)]))


if __name__ == "__main__":
    guarded(measure)() if sys.argv[1:] == ["measure"] else cli(main, CONFIGS)
