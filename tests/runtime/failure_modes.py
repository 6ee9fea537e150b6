"""How people break distributed training, on two real ranks: `torchrun failure_modes.py`.

Each rank prints one line of JSON per case: [rank, case, error, warnings].
"""

import contextlib
import io
import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from dream_trainer.configs import DeviceParameters, RunError
from dream_trainer.parallel.pipeline import cut_model
from dream_trainer.utils.entrypoint import guarded
from tests.runtime import uneven
from tests.runtime.tiny import FLOAT32, Batch, TinyTrainer, batches, config

DDP = DeviceParameters.DDP(**FLOAT32)
FSDP = DeviceParameters.FSDP(**FLOAT32)
TP = DeviceParameters(tensor_parallel=2, **FLOAT32)
CASES: dict[str, Callable[[int], Any]] = {}


def case(function: Callable[[int], Any]) -> Callable[[int], Any]:
    CASES[function.__name__] = function
    return function


def fit(trainer: TinyTrainer) -> TinyTrainer:
    trainer.fit()
    return trainer


def own(rank: int, number: int = 2) -> list[Batch]:
    """Batches that no other rank has."""
    return batches(number, seed=rank)


# Data parallel


class Parts(TinyTrainer):
    """Goes round the replicated model."""

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        x = batch["x"]
        for layer in self.model.layers:
            x = layer(x).tanh()
        self.backward(F.mse_loss(x, batch["y"]))
        self.step(self.optimizer)
        return {}


@case
def mode_06_parts_of_a_replicated_model(rank: int) -> None:
    fit(Parts(config(DDP, num_sanity_val_steps=1), own(rank), own(rank)))


@case
def mode_06_not_where_the_model_is_called(rank: int) -> None:
    fit(TinyTrainer(config(DDP), own(rank)))
    fit(TinyTrainer(config(DDP, gradient_accumulation_steps=2), own(rank, 4)))


class NoSync(TinyTrainer):
    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        self.model.set_requires_gradient_sync(False)  # type: ignore[operator]
        return super().training_step(batch, batch_idx)


@case
def mode_25_sync_left_off_ddp(rank: int) -> None:
    fit(NoSync(config(DDP), own(rank)))


@case
def mode_25_sync_left_off_fsdp(rank: int) -> None:
    fit(NoSync(config(FSDP), own(rank)))


class Idle(TinyTrainer):
    """A parameter that the loss does not depend on."""

    def configure_models(self) -> None:
        super().configure_models()
        self.model.register_parameter("spare", nn.Parameter(torch.empty(2)))

    def init_weights(self) -> None:
        super().init_weights()
        nn.init.zeros_(self.model.spare)  # type: ignore[arg-type]


@case
def a_parameter_outside_the_loss_fsdp(rank: int) -> None:
    fit(Idle(config(FSDP), own(rank)))


@case
def a_parameter_outside_the_loss_ddp(rank: int) -> None:
    fit(Idle(config(DDP), own(rank)))


class Adversarial(TinyTrainer):
    """A critic's step, then the generator's, whose gradients flow through the critic."""

    def configure_models(self) -> None:
        super().configure_models()
        self.critic = nn.Linear(2, 1)

    def apply_fully_shard(self, config: dict[str, Any]) -> None:
        super().apply_fully_shard(config)
        fully_shard(self.critic, **config)

    def configure_optimizers(self) -> dict[nn.Module, torch.optim.Optimizer]:
        self.critic_optimizer = torch.optim.SGD(self.critic.parameters(), lr=0.1)
        return super().configure_optimizers() | {self.critic: self.critic_optimizer}

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        made = self.model(batch["x"])
        self.backward((self.critic(made.detach()) - self.critic(batch["y"])).mean())
        self.step(self.critic_optimizer)
        self.backward(-self.critic(made).mean())
        self.step(self.optimizer)
        self.critic_optimizer.zero_grad()
        return {}


@case
def two_models_and_two_optimizers(rank: int) -> None:
    fit(Adversarial(config(FSDP), own(rank)))


@case
def mode_16_18_data_not_split(rank: int) -> None:
    fit(TinyTrainer(config(DDP, gradient_accumulation_steps=2), batches(2)))


@case
def mode_16_18_not_on_split_data(rank: int) -> None:
    fit(TinyTrainer(config(FSDP), own(rank)))


class FoldsRank(TinyTrainer):
    def init_weights(self) -> None:
        torch.manual_seed(self.config.seed + self.world.rank)
        super().init_weights()


@case
def mode_10_rank_in_the_seed_does_nothing(rank: int) -> None:
    trainer = fit(FoldsRank(config(DDP), batches(1)))
    weight = trainer.model.layers[0].weight.detach()
    both = [torch.empty_like(weight) for _ in range(2)]
    dist.all_gather(both, weight)
    if not torch.equal(*both):
        raise RunError("replicas differ")


class Draws(TinyTrainer):
    """One draw in the first step."""

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        self.drawn = F.dropout(torch.ones(64))
        return super().training_step(batch, batch_idx)


def same_on_both(tensor: Tensor) -> bool:
    both = [torch.empty_like(tensor) for _ in range(2)]
    dist.all_gather(both, tensor)
    return torch.equal(*both)


@case
def mode_60_dropout_differs_over_dp_and_not_over_tp(rank: int) -> None:
    outcomes = [
        same_on_both(fit(Draws(config(DDP), own(rank))).drawn),
        same_on_both(fit(Draws(config(FSDP), own(rank))).drawn),
    ]

    class DrawsTP(Draws, TPTrainer):
        pass

    outcomes.append(same_on_both(fit(DrawsTP(config(TP), tokens())).drawn))
    if outcomes != [False, False, True]:
        raise RunError(str(outcomes))


class Masked(TinyTrainer):
    """A mean over the rows that count."""

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        counts = batch["counts"]
        self.backward(F.mse_loss(self.model(batch["x"][counts]), batch["y"][counts]))
        self.step(self.optimizer)
        return {}

    def count_items(self, batch: Batch) -> int:
        return int(batch["counts"].sum())


@case
def mode_23_means_of_uneven_batches(rank: int) -> None:
    data = own(rank)
    for batch in data:
        batch["counts"] = torch.tensor([True, rank == 0])
    fit(Masked(config(FSDP), data))


@case
def mode_22_23_tokens_unevenly_spread(rank: int) -> bool:
    """The weights after one step, over two ranks and over windows, beside one big batch."""
    found: list[Any] = []
    uneven.tell = lambda case, outcome: found.append(outcome)
    uneven.counted(rank, 2)
    return all(outcome is True or outcome[0] == outcome[1] for outcome in found)


# Tensor parallel


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.up(self.norm(x)).relu())


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(8, 8)
        self.layers = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


PLAIN: dict[str, Any] = {"layers.*.up": ColwiseParallel(), "layers.*.down": RowwiseParallel()}
SEQUENCE: dict[str, Any] = {
    "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "layers.*": PrepareModuleInput(
        input_layouts=Shard(1), desired_input_layouts=Shard(1), use_local_output=True
    ),
    "layers.*.norm": SequenceParallel(use_local_output=True),
    "layers.*.up": ColwiseParallel(input_layouts=Shard(1)),
    "layers.*.down": RowwiseParallel(output_layouts=Shard(1)),
    "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
}


class TPTrainer(TinyTrainer):
    """Next tokens, by a plan."""

    plan = PLAIN

    def configure_models(self) -> None:
        self.model: Any = Net()

    def apply_tensor_parallel(self, tp_mesh: Any) -> None:
        parallelize_module(self.model, tp_mesh, self.plan)

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        self.loss = self.loss_of(batch)
        self.backward(self.loss)
        self.norm = self.step(self.optimizer)
        return {}

    def loss_of(self, batch: Batch) -> Tensor:
        return F.cross_entropy(self.model(batch["x"]).flatten(0, 1), batch["y"].flatten())


def tokens(seed: int = 0, high: int = 8) -> list[Batch]:
    draws = torch.Generator().manual_seed(seed)
    return [
        {
            "x": torch.randint(8, (2, 4), generator=draws),
            "y": torch.randint(high, (2, 4), generator=draws),
        }
        for _ in range(2)
    ]


@case
def mode_16_tp_ranks_read_other_batches(rank: int) -> None:
    fit(TPTrainer(config(TP), tokens(seed=rank)))


def planned(**changes: Any) -> type[TPTrainer]:
    plan = {key: style for key, style in (SEQUENCE | changes).items() if style is not None}
    return type("Planned", (TPTrainer,), {"plan": plan})


@case
def mode_41_local_logits(rank: int) -> None:
    local = planned(head=ColwiseParallel(input_layouts=Shard(1)))
    fit(local(config(TP), tokens(high=4)))


@case
def mode_41_sharded_logits(rank: int) -> None:
    sharded = planned(head=ColwiseParallel(input_layouts=Shard(1), use_local_output=False))
    fit(sharded(config(TP), tokens()))


@case
def mode_42_a_norm_left_out(rank: int) -> None:
    fit(planned(**{"layers.*.norm": None})(config(TP), tokens()))


@case
def mode_42_not_where_the_norm_is_in_the_plan(rank: int) -> None:
    fit(planned()(config(TP), tokens()))


class Tabled(TinyTrainer):
    """A table that another rank fills in another way."""

    def configure_models(self) -> None:
        super().configure_models()
        self.model.register_buffer("table", torch.empty(2), persistent=False)

    def init_weights(self) -> None:
        super().init_weights()
        nn.init.constant_(self.model.table, self.world.rank)  # type: ignore[arg-type]


@case
def mode_10_a_buffer_over_dp_shard(rank: int) -> None:
    fit(Tabled(config(FSDP), own(rank)))


class DrawsOwn(TPTrainer):
    def init_weights(self) -> None:
        super().init_weights()
        self.model.layers[1].norm.weight.copy_(torch.full((8,), 1.0 + self.world.rank))


@case
def mode_10_replicated_over_tp(rank: int) -> None:
    fit(DrawsOwn(config(TP), tokens()))


@case
def mode_26_a_norm_over_mixed_meshes(rank: int) -> Any:
    norms = []
    for plan in (PLAIN, SEQUENCE):
        for clip in (None, 0.1):
            trainer = type("T", (TPTrainer,), {"plan": plan})(
                config(TP, gradient_clip_val=clip, max_steps=1), tokens()
            )
            trainer.is_logging_step = True
            type(trainer).logs_step = lambda self, step: True
            norms.append(fit(trainer).norm.item())
    return norms


# Pipeline


class PPTrainer(TinyTrainer):
    """Two stages of two layers."""

    def configure_models(self) -> None:
        self.model: Any = Stack()

    def apply_pipeline_parallel(self, pp_mesh: Any) -> Any:
        parts = cut_model(self.model, pp_mesh, self.world, layers="layers", first=[], last=[])
        return {"model": parts}

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        loss = self.pipeline(self.model, batch["x"], target=batch["y"], loss=F.mse_loss)
        self.backward(loss)
        self.norm = self.step(self.optimizer)
        return {}


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 2)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).tanh()
        return x


def pipelined(**options: Any) -> DeviceParameters:
    return DeviceParameters(pipeline_parallel=2, **(FLOAT32 | options))


@case
def mode_44_accumulation_over_a_pipeline(rank: int) -> Any:
    trainer = PPTrainer(
        config(pipelined(), gradient_accumulation_steps=2, gradient_clip_val=9.0),
        batches(2, rows=8),
    )
    return fit(trainer).norm.item()  # type: ignore[union-attr]


@case
def a_ragged_batch(rank: int) -> None:
    fit(PPTrainer(config(pipelined()), batches(1, rows=6)))


@case
def fewer_microbatches_than_stages(rank: int) -> None:
    fit(PPTrainer(config(pipelined(pipeline_microbatches=1)), batches(1, rows=8)))


@case
def pp_ranks_read_other_batches(rank: int) -> None:
    fit(PPTrainer(config(pipelined()), batches(1, rows=8, seed=rank)))


class Branches(TinyTrainer):
    """From its second batch on, one rank leaves a module out."""

    def configure_models(self) -> None:
        self.model = Stack()
        self.leaves_out = False

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        if self.leaves_out and batch_idx == 1:
            self.model.layers[0] = nn.Identity()
        return super().training_step(batch, batch_idx)


def branching(device: DeviceParameters, rank: int, *, leaves_out: bool, steps: int = 3) -> Any:
    trainer = Branches(config(device, debug_collectives=steps), own(rank, 3))
    real_set_up = trainer.configure_models

    def configure_models() -> None:
        real_set_up()
        trainer.leaves_out = leaves_out

    trainer.configure_models = configure_models  # type: ignore[method-assign]
    return fit(trainer)


@case
def mode_08_a_branch_not_all_take_under_fsdp(rank: int) -> None:
    branching(FSDP, rank, leaves_out=rank == 1)


@case
def mode_08_a_branch_not_all_take_under_ddp(rank: int) -> None:
    branching(DDP, rank, leaves_out=rank == 1)


@case
def mode_08_not_where_all_take_the_same(rank: int) -> None:
    trainer = branching(FSDP, rank, leaves_out=False, steps=2)
    hooks = [hook for m in trainer.model.modules() for hook in m._forward_pre_hooks.values()]
    if any("CallOrder" in repr(hook) for hook in hooks):
        raise RunError("The hooks are still there after two steps.")


@guarded
def main() -> None:
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for name, run in CASES.items():
        said, error, value = io.StringIO(), None, None
        with contextlib.redirect_stderr(said):
            try:
                value = run(rank)
            except RunError as caught:
                error = str(caught)
        line = json.dumps([rank, name, error, said.getvalue().splitlines(), value])
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
