"""What ranks hold alike has to be alike."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from ..configs import RunError
from ..materialize import named_tensors, shortened
from ..seeding import NamedParts, fingerprint
from ..world import World

REPLICAS = ("dp_replicate", "dp_shard", "cp", "tp")
"""The axes along which ranks hold the same modules."""


def raise_unless_replicas_agree(models: NamedParts, world: World) -> None:
    """Raise `RunError` where replicas start from different weights. All ranks take part.

    Parameters and buffers are compared along every axis that does not shard them; buffers
    not along tp, whose ranks may hold tables of their own heads.
    """
    parameters = {id(p) for _, model in models for p in model.parameters()}
    for axis, group in groups(world).items():
        names, tensors = [], []
        for name, tensor in named_tensors(models):
            if (axis != "tp" or id(tensor) in parameters) and is_replicated(tensor, group):
                names.append(name)
                tensors.append(fingerprint(tensor))
        spans = zip(names, extremes(tensors, group), strict=True)
        if differing := [name for name, (low, high) in spans if low != high]:
            raise RunError(
                f"{axis} replicas disagree on {shortened(differing)} after init_weights. "
                "Do not fold the rank into a seed there: the runtime seeds it."
            )


def warn_of_one_rank_kept(state: Mapping[str, Any], world: World) -> None:
    """Warn of tensors that differ between ranks under one key of `state`, a checkpoint's.

    All ranks take part.
    """
    for axis, group in groups(world).items():
        plain = [
            (name, tensor)
            for name, tensor in state.items()
            if isinstance(tensor, Tensor) and is_replicated(tensor, group)
        ]
        spans = extremes([fingerprint(tensor) for _, tensor in plain], group)
        differing = [n for (n, _), (low, high) in zip(plain, spans, strict=True) if low != high]
        if differing:
            warn(
                world,
                f"{shortened(differing)} differ between {axis} ranks, but have one key each in a "
                "checkpoint, which keeps the values of one rank.",
            )


def groups(world: World) -> dict[str, dist.ProcessGroup]:
    """The axes of more than one rank along which modules are the same."""
    sizes = world.axes.sizes
    return {axis: world.mesh.get_group(axis) for axis in REPLICAS if sizes[axis] > 1}


def is_replicated(tensor: Tensor, group: dist.ProcessGroup) -> bool:
    """Whether all ranks of `group` should hold the same values of `tensor`."""
    if not isinstance(tensor, DTensor):
        return True
    ranks = set(dist.get_process_group_ranks(group))
    return all(
        placement.is_replicate()
        or len(ranks.intersection(dist.get_process_group_ranks(tensor.device_mesh.get_group(dim))))
        == 1
        for dim, placement in enumerate(tensor.placements)
    )


def extremes(values: Sequence[Tensor], group: dist.ProcessGroup) -> list[tuple[Tensor, Tensor]]:
    """The smallest and largest of each of `values`, all of one shape, over `group`.

    One collective and one device sync. All ranks take part, with as many values.
    """
    if not values:
        return []
    own = torch.stack(list(values))
    both = torch.stack((-own, own))
    dist.all_reduce(both, dist.ReduceOp.MAX, group=group)
    low, high = both.cpu()
    return list(zip(-low, high, strict=True))


def warn(world: World, text: str) -> None:
    """Print a warning once, however many ranks there are; each pipeline stage has its own."""
    if all(place == 0 for axis, place in world.coordinate.items() if axis != "pp"):
        print(f"warning: {text}", file=sys.stderr, flush=True)
