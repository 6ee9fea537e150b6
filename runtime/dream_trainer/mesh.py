"""Axis sizes -> the device mesh and the views of it that hooks receive."""

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from .configs import Axes, DeviceParameters


def build_mesh(axes: Axes, parameters: DeviceParameters, device_type: str) -> DeviceMesh:
    """The axes that are in use, outermost first. All ranks take part.

    An axis of size 1 is left out: its groups, one for each rank, would take thousands of
    rendezvous on a large cluster. Hooks that are forced on one rank still get theirs.
    """
    forced = {"dp_shard": parameters.force_fsdp, "dp_replicate": parameters.force_ddp}
    sizes = {axis: n for axis, n in axes.sizes.items() if n > 1 or forced.get(axis)}
    sizes = sizes or {"dp_shard": 1}
    return init_device_mesh(device_type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))


def shard_view(mesh: DeviceMesh, axes: Axes) -> DeviceMesh:
    """What `fully_shard` takes: (dp_shard) or, replicated over groups, (dp_replicate, dp_shard).

    `fully_shard` reads a two-dimensional mesh by position: replicate first, shard last.
    """
    return mesh["dp_replicate", "dp_shard"] if axes.dp_replicate > 1 else mesh["dp_shard"]


def data_group(mesh: DeviceMesh, axes: Axes) -> dist.ProcessGroup:
    """The ranks that read different data. All ranks take part."""
    if axes.dp_replicate > 1 and axes.dp_shard > 1:
        return mesh["dp_replicate", "dp_shard"]._flatten("dp").get_group()
    return mesh.get_group("dp_replicate" if axes.dp_replicate > 1 else "dp_shard")
