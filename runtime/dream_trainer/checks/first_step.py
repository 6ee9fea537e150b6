"""In the first step, once: batches, loss and gradients are equal where they must be."""

from typing import Any
from zlib import crc32

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from ..configs import RunError
from ..data import replaced
from ..materialize import shortened
from ..seeding import NamedParts, fingerprint
from ..world import World
from .replicas import extremes, groups, is_replicated, warn
from .start_up import trained

TOLERANCE = 1e-2
"""Share of a gradient's norm: sums in another order differ by less, other tokens by more."""

LOSS_TOLERANCE = 1e-3
"""Of the loss, or of 1: ranks along tp compute it from the very same numbers."""

REMEDIES = {
    "tp": "each sees a part of the sequence or of the features. A module on a split sequence "
    "needs SequenceParallel() in the plan of apply_tensor_parallel.",
    "other": "they were not averaged. Call self.model(...), not its parts or methods, let the "
    "loss depend on every parameter, and leave gradient synchronisation on.",
}


class FirstStep:
    """Looks at batches, losses and gradients until the first optimizer step is done."""

    def __init__(self, models: NamedParts, world: World) -> None:
        self.names = {id(parameter): name for name, parameter in trained(models)}
        self.world = world
        self.batches = 0
        self.hash = 0
        self.items: list[int] = []
        """What the batches of this rank count."""

        self.sums = False

    def batch(self, batch: Any, ends_window: bool) -> None:
        """Raise where ranks that work on one batch got different ones. All ranks take part.

        Data ranks that got the same batches are named once the window ends.
        """
        prints: list[tuple[int, float]] = []
        replaced(batch, lambda tensor: _note(tensor, prints))
        self.batches += 1
        self.hash = crc32(repr((self.hash, prints)).encode())
        axes = self.world.axes
        if axes.world_size == 1 or dist.get_backend() == "fake":
            return
        everyone = [torch.empty((), dtype=torch.int64) for _ in range(axes.world_size)]
        dist.all_gather(everyone, torch.tensor(self.hash))
        hashes = torch.stack(everyone).view(axes.pp, axes.dp_size, axes.cp, axes.tp)
        for pp, share, cp, tp in (hashes != hashes[:1, :, :1, :1]).nonzero().tolist():
            apart = {"pp": pp, "cp": cp, "tp": tp}
            ranks = [f"{axis} ranks 0 and {rank}" for axis, rank in apart.items() if rank]
            raise RunError(
                f"{' and '.join(ranks)} of dp rank {share} received different batches. Split the "
                "data by self.world.dp_rank and self.world.dp_size alone."
            )
        if ends_window and prints:  # What is no tensor cannot be compared.
            self._warn_of_twins(hashes[0, :, 0, 0].tolist())

    def _warn_of_twins(self, hashes: list[int]) -> None:
        first: dict[int, int] = {}
        for rank, own in enumerate(hashes):
            if (twin := first.setdefault(own, rank)) < rank:
                number = f"{self.batches} batches" if self.batches > 1 else "batch"
                warn(
                    self.world,
                    f"dp ranks {twin} and {rank} received the same first {number}. Split the "
                    "data by self.world.dp_rank and self.world.dp_size.",
                )
                return

    def count(self, items: int) -> None:
        """Note how many items a batch holds. Raises `RunError` where that is no number."""
        if not isinstance(items, (int, float)):
            raise RunError(
                f"count_items returned a {type(items).__name__}, and is asked for every batch: a "
                "tensor would make the host wait for its device. Count while the batch is made, "
                "and return that number."
            )
        self.items.append(items)

    def loss(self, loss: Tensor, is_sum: bool) -> None:
        """Raise where the ranks along tp computed different losses. All ranks take part."""
        self.sums = self.sums or is_sum
        if self.world.axes.tp == 1 or loss.numel() != 1:
            return
        loss = loss.detach()
        value = (loss.full_tensor() if isinstance(loss, DTensor) else loss).float()
        low, high = extremes([value], self.world.mesh.get_group("tp"))[0]
        if high - low > LOSS_TOLERANCE * high.abs().clamp(min=1):
            raise RunError(
                f"The loss is {low.item():.4g} on one tp rank and {high.item():.4g} on another, "
                "but they work on one batch. Are the logits sharded over classes? Give the head "
                "output_layouts=Replicate(), or compute the loss within loss_parallel()."
            )

    def gradients(self, optimizer: Optimizer) -> None:
        """Name parameters without a gradient; raise where replicas got different ones.

        All ranks take part.
        """
        held = [p for group in optimizer.param_groups for p in group["params"]]
        named = {self.names[id(p)]: p for p in held if id(p) in self.names}
        if idle := [name for name, parameter in named.items() if parameter.grad is None]:
            warn(
                self.world,
                f"{len(idle)} of {len(named)} parameters of {type(optimizer).__name__} got no "
                f"gradient in the first step: {shortened(idle)}. The loss does not depend on "
                "them.",
            )
        for axis, group in groups(self.world).items():
            alike = [name for name, p in named.items() if is_replicated(p, group)]
            facts = [_facts(named[name].grad).to(self.world.device) for name in alike]
            spans = extremes(facts, group)
            differing = [
                name
                for name, (low, high) in zip(alike, spans, strict=True)
                if low[0] != high[0] or (high - low)[1:].max() > TOLERANCE * high[1]
            ]
            if differing:
                raise RunError(
                    f"{axis} ranks got different gradients for {shortened(differing)}: "
                    f"{REMEDIES.get(axis, REMEDIES['other'])}"
                )

    def warn_of_uneven_means(self) -> None:
        """Say so where a mean of means is not the mean. All ranks take part."""
        bounds = torch.tensor([min(self.items), max(self.items)], device=self.world.device)
        low, high = bounds.tolist()
        if self.world.loss_size > 1:
            ((lows, highs),) = extremes([bounds], self.world.loss_group)
            low, high = int(lows[0]), int(highs[1])
        if low < high and not self.sums and self.world.axes.pp == 1:
            warn(
                self.world,
                f"batches of the first step count {low} to {high} items, but self.backward(loss) "
                "weighs all batches alike. For the mean over items pass their sum, and "
                "num_items=.",
            )


def _note(tensor: Tensor, prints: list[tuple[int, float]]) -> Tensor:
    """Append the fingerprint of one tensor of a batch."""
    shape = crc32(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
    values = fingerprint(tensor).item() if tensor.layout is torch.strided else 0
    prints.append((shape, values))
    return tensor


def _facts(gradient: Tensor | None) -> Tensor:
    """(whether it is there, norm, sum) of this rank's part, shape (3,) float32.

    A partial sum of a sequence-parallel norm is there, and still differs by rank.
    """
    if gradient is None:
        return torch.zeros(3)
    if isinstance(gradient, DTensor):
        is_sum = any(placement.is_partial() for placement in gradient.placements)
        gradient = None if is_sum else gradient._local_tensor
    if gradient is None or gradient.layout is not torch.strided:
        return torch.tensor([1.0, 0.0, 0.0])
    norm = torch.linalg.vector_norm(gradient, dtype=torch.float32)
    return torch.stack((torch.ones_like(norm), norm, gradient.sum(dtype=torch.float32)))
