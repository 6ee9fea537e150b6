"""Means over all data ranks, exact however unevenly the data lies."""

import sys
from collections.abc import Mapping
from math import nan
from typing import Any
from zlib import crc32

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .configs import RunError
from .world import World


class Mean:
    """Weighted sums of named values, kept on the device until `reduce` reads them."""

    def __init__(self, world: World) -> None:
        self.world = world
        # float64, so that the mean of many batches is exact to float32; MPS has none.
        self.dtype = torch.float32 if world.device.type == "mps" else torch.float64
        self.sums: dict[str, Tensor] = {}
        self.weights: dict[str, float] = {}

    def add(self, values: Mapping[str, Any], weight: float = 1.0) -> None:
        """Add values that stand for `weight` items. None is skipped. No device sync."""
        for name, value in values.items():
            if value is None:
                continue
            tensor = self._as_tensor(name, value)
            if tensor.ndim:
                raise RunError(
                    f"{name!r} has shape {tuple(tensor.shape)}, but a logged value is one number. "
                    "Return its mean."
                )
            # A batch that weighs nothing says nothing, not even NaN.
            term = (
                tensor.to(self.dtype) * weight
                if weight
                else torch.zeros_like(tensor, dtype=self.dtype)
            )
            self.sums[name] = self.sums[name] + term if name in self.sums else term
            self.weights[name] = self.weights.get(name, 0.0) + weight

    def _as_tensor(self, name: str, value: Any) -> Tensor:
        """`value` on the device. A Python number keeps all its digits."""
        if isinstance(value, Tensor):
            return whole(value.detach()).to(self.world.device)
        try:
            return torch.as_tensor(value, dtype=self.dtype, device=self.world.device)
        except (TypeError, ValueError, RuntimeError):
            raise RunError(
                f"{name!r} is {type(value).__name__}, but a logged value is one number. "
                "Leave it out, or return None for no value."
            ) from None

    def reduce(self) -> dict[str, float]:
        """The means over all data ranks, as floats; one collective for all, one device sync.

        Raises `RunError` where ranks hold different names. All ranks take part.
        """
        if self.world.loss_size > 1:
            raise_unless_equal(sorted(self.sums), self.world)
        if not self.sums:
            return {}
        names = sorted(self.sums)
        sums = torch.stack([self.sums[name] for name in names])
        weights = torch.tensor([self.weights[name] for name in names], dtype=self.dtype)
        packed = torch.stack([sums, weights.to(sums.device)])
        if self.world.loss_size > 1:
            dist.all_reduce(packed, group=self.world.loss_group)
        pairs = zip(names, *packed.tolist(), strict=True)
        means = {name: total / weight if weight else nan for name, total, weight in pairs}
        return {name: means[name] for name in self.sums}


def raise_unless_equal(names: list[str], world: World) -> None:
    """Raise `RunError` that says which rank lacks which name. All data ranks take part."""
    code = crc32("\n".join(names).encode())
    extremes = torch.tensor([code, -code])
    dist.all_reduce(extremes, dist.ReduceOp.MAX, group=world.loss_group)
    if extremes[0] == -extremes[1]:
        return
    everyone: list[list[str]] = [[] for _ in range(world.loss_size)]
    dist.all_gather_object(everyone, names, group=world.loss_group)
    union = set().union(*everyone)
    lacking = [
        f"dp rank {rank} lacks {', '.join(sorted(union - set(held)))}"
        for rank, held in enumerate(everyone)
        if union - set(held)
    ]
    raise RunError(
        f"Ranks log different values: {'; '.join(lacking)}. Return the same names on every rank."
    )


def whole(tensor: Tensor) -> Tensor:
    """The value of a DTensor on every rank of its mesh; any other tensor as it is."""
    full = getattr(tensor, "full_tensor", None)
    return full() if full is not None else tensor


def unwrapped(output: Any) -> Any:
    """What a loss gets: a plain tensor for a replicated DTensor; a sharded one as it is.

    The tensor-parallel model itself must not unwrap its output: that makes a view, and an
    in-place operation on a view would lose the hooks of `fully_shard`.
    """
    placements = getattr(output, "placements", None)
    if placements is not None and all(placement.is_replicate() for placement in placements):
        return output.to_local()
    return output


def is_metric(value: object) -> bool:
    """Whether `value` is a metric of torchmetrics, or a list or dict of modules that are.

    They are modules, but no models: nothing of them is trained, sharded or saved.
    """
    torchmetrics = sys.modules.get("torchmetrics")
    if torchmetrics is None or not isinstance(value, nn.Module):
        return False
    if isinstance(value, (torchmetrics.Metric, torchmetrics.MetricCollection)):
        return True
    held = list(value) if isinstance(value, nn.ModuleList) else []
    held = list(value.values()) if isinstance(value, nn.ModuleDict) else held
    return bool(held) and all(map(is_metric, held))


def leaves(metric: nn.Module) -> list[Any]:
    """The metrics of torchmetrics in a metric or collection, itself included."""
    kind = sys.modules["torchmetrics"].Metric
    return [module for module in metric.modules() if isinstance(module, kind)]
