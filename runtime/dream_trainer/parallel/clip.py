"""The norm of all gradients, over whatever meshes they are spread, and clipping by it."""

from collections import defaultdict
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate


def total_norm(gradients: Sequence[Tensor], pp_group: dist.ProcessGroup | None = None) -> Tensor:
    """The 2-norm of all `gradients` together, shape (), the same on every rank.

    Each rank squares its own parts; a sharded gradient's squares are summed over the
    mesh dimensions that shard it, and the stages' over `pp_group`. All ranks take part,
    with the same gradients but for those of other stages.
    """
    spread: dict[tuple[dist.ProcessGroup, ...], list[Tensor]] = defaultdict(list)
    for gradient in gradients:
        if isinstance(gradient, DTensor):
            gradient = reduced(gradient)
            mesh = gradient.device_mesh
            groups = tuple(
                mesh.get_group(dim)
                for dim, placement in enumerate(gradient.placements)
                if not placement.is_replicate() and mesh.size(dim) > 1
            )
            spread[groups].append(gradient._local_tensor)
        else:
            spread[()].append(gradient)
    if pp_group is None and list(spread) == [()]:
        return torch.nn.utils.get_total_norm(spread[()])
    squares = []
    for groups, locals_ in spread.items():
        square = torch.nn.utils.get_total_norm(locals_).square()
        for group in groups:
            dist.all_reduce(square, group=group)
        squares.append(square)
    total = torch.stack(squares).sum()
    if pp_group is not None:
        dist.all_reduce(total, group=pp_group)
    return total.sqrt()


def reduced(gradient: DTensor) -> DTensor:
    """Sequence-parallel norms leave each rank its own share of a sum: square the sum, not it."""
    if not any(placement.is_partial() for placement in gradient.placements):
        return gradient
    return gradient.redistribute(
        placements=[Replicate() if p.is_partial() else p for p in gradient.placements]
    )


def scale(gradients: Sequence[Tensor], factor: Tensor | float) -> None:
    """Multiply every gradient in place."""
    torch._foreach_mul_(
        [g._local_tensor if isinstance(g, DTensor) else g for g in gradients], factor
    )


def clip(gradients: Sequence[Tensor], norm: Tensor, max_norm: float) -> None:
    """Scale gradients of total `norm` down to `max_norm`, without reading the norm back."""
    scale(gradients, torch.clamp(max_norm / (norm + 1e-6), max=1.0))
