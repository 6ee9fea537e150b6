"""The size of gradients and weights, module by module."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from ..loggers import Histogram
from ..parallel.clip import reduced
from .callback import Callback

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from ..trainer import DreamTrainer

BINS = 64


@dataclass(frozen=True)
class Plan:
    """The parameters of an optimizer, and to which module each belongs."""

    parameters: list[Tensor]
    modules: list[int]
    """Of each parameter, the place of its module in `names`."""

    names: list[str]
    """Modules, those of other pipeline stages included: the same on every rank."""


class ModelWatchCallback(Callback):
    """Adds `grad_norm/<module>` and `param_norm/<module>` to every `every`-th logged step.

    Motive: one norm of everything says that a run diverges, those of its modules say where.
    The norms are of whole tensors, however they are sharded; gradients are as the optimizer
    gets them, after clipping. One collective for all of them, and no read of its own.

    `depth` is how many names below a model make a module: 1 is `model.embed`,
    `model.layers.0`. `histograms=True` shows wandb and TensorBoard how values are spread as
    well, which does read from the device.
    """

    def __init__(self, every: int = 10, depth: int = 1, histograms: bool = False) -> None:
        self.every, self.depth, self.histograms = every, depth, histograms
        self.plans: dict[int, Plan] = {}
        self.logged_steps = 0

    def pre_optimizer_step(self, trainer: "DreamTrainer", optimizer: "Optimizer") -> None:
        if not trainer.is_logging_step or self.logged_steps % self.every:
            return
        plan = self.plans.get(id(optimizer))
        if plan is None:
            plan = self.plans[id(optimizer)] = self._plan(trainer, optimizer)
        gradients = [parameter.grad for parameter in plan.parameters]
        norms = torch.stack(
            [_squares(plan, kind, trainer) for kind in (gradients, plan.parameters)]
        )
        if trainer.world.world_size > 1:
            dist.all_reduce(norms)
        norms = norms.sqrt()
        for row, kind in enumerate(("grad_norm", "param_norm")):
            values = zip(plan.names, norms[row].unbind(), strict=True)
            trainer.also_log({f"{kind}/{name}": value for name, value in values})
        if self.histograms:
            self._spread(trainer, plan, gradients, "gradients")
            self._spread(trainer, plan, plan.parameters, "parameters")

    def post_train_step(
        self, trainer: "DreamTrainer", result: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        if trainer.is_logging_step and not trainer.is_accumulating_gradients:
            self.logged_steps += 1

    def _plan(self, trainer: "DreamTrainer", optimizer: "Optimizer") -> Plan:
        """All ranks take part."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        of = [module_of(trainer.parameter_names[id(p)], self.depth) for p in parameters]
        names = list(dict.fromkeys(of))
        if (group := trainer.world.pp_group) is not None:
            everyone: list[list[str]] = [[] for _ in range(group.size())]
            dist.all_gather_object(everyone, names, group=group)
            names = list(dict.fromkeys(name for held in everyone for name in held))
        places = {name: place for place, name in enumerate(names)}
        return Plan(parameters, [places[name] for name in of], names)

    def _spread(
        self,
        trainer: "DreamTrainer",
        plan: Plan,
        tensors: Sequence[Tensor | None],
        kind: str,
    ) -> None:
        """All ranks take part: twice, first for the edges, then for the counts."""
        is_alone = trainer.world.world_size == 1
        limits = torch.full((len(plan.names), 2), -torch.inf, device=trainer.world.device)
        parts = [
            (place, local.float(), copies)
            for place, tensor in zip(plan.modules, tensors, strict=True)
            for local, copies in _parts(tensor, trainer)
            if local.numel()
        ]
        for place, local, _ in parts:
            ends = torch.stack([-local.min(), local.max()]).to(limits)
            limits[place] = torch.maximum(limits[place], ends)
        if not is_alone:
            dist.all_reduce(limits, dist.ReduceOp.MAX)
        ends_of = [(-low, high) for low, high in limits.tolist()]
        counts = torch.zeros(len(plan.names), BINS, device=trainer.world.device)
        usable = [-torch.inf < low <= high < torch.inf for low, high in ends_of]
        for place, local, copies in parts:
            if usable[place]:
                low, high = ends_of[place]
                counts[place] += torch.histc(local, BINS, low, high).to(counts) / copies
        if not is_alone:
            dist.all_reduce(counts)
        made = {}
        rows = zip(plan.names, ends_of, counts.round().tolist(), usable, strict=True)
        for name, (low, high), row, fits in rows:
            if fits and low < high:
                edges = torch.linspace(low, high, BINS + 1, dtype=torch.float64).tolist()
                made[f"{kind}/{name}"] = Histogram(row, edges)
        for logger in trainer.loggers:
            logger.spread(trainer.global_step + 1, made)


def module_of(parameter: str, depth: int) -> str:
    """The first `depth` names below the model; the number of a layer belongs to its list."""
    model, *path = parameter.split(".")[:-1]
    taken: list[str] = []
    levels = 0
    for part in path:
        if not part.isdigit():
            levels += 1
        if levels > depth:
            break
        taken.append(part)
    return ".".join([model, *taken])


def _squares(plan: Plan, tensors: Sequence[Tensor | None], trainer: "DreamTrainer") -> Tensor:
    """This rank's part of each module's sum of squares, on the device."""
    device = trainer.world.device
    exact = torch.float32 if device.type == "mps" else torch.float64
    sums = torch.zeros(len(plan.names), dtype=exact, device=device)
    places, locals_, shares = [], [], []
    for place, tensor in zip(plan.modules, tensors, strict=True):
        for local, copies in _parts(tensor, trainer):
            places.append(place)
            locals_.append(local)
            shares.append(1 / copies)
    if not locals_:
        return sums
    norms = torch.stack(torch._foreach_norm(locals_, 2, dtype=torch.float32))
    squares = norms.to(sums).square() * torch.tensor(shares, dtype=exact, device=device)
    return sums.index_add_(0, torch.tensor(places, device=device), squares)


def _parts(tensor: Tensor | None, trainer: "DreamTrainer") -> list[tuple[Tensor, int]]:
    """What this rank holds of a tensor, and how many ranks hold the same of it."""
    if tensor is None:
        return []
    world = trainer.world
    ranks = world.world_size // world.axes.pp
    if not isinstance(tensor, DTensor):
        return [(tensor.detach(), ranks)]
    tensor = reduced(tensor)
    mesh = tensor.device_mesh
    for dim, placement in enumerate(tensor.placements):
        if not placement.is_replicate():
            ranks //= mesh.size(dim)
    return [(tensor._local_tensor.detach(), ranks)]
