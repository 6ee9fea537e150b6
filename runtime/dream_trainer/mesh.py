"""Axis sizes -> the device mesh and the views of it that hooks receive."""

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from .configs import Axes


def build_mesh(axes: Axes, device_type: str) -> DeviceMesh:
    """All five axes, outermost first; an axis that is not used has size 1."""
    names = tuple(axes.sizes)
    return init_device_mesh(device_type, tuple(axes.sizes.values()), mesh_dim_names=names)


def shard_view(mesh: DeviceMesh, axes: Axes) -> DeviceMesh:
    """What `fully_shard` takes: (dp_shard) or, replicated over groups, (dp_replicate, dp_shard).

    `fully_shard` reads a two-dimensional mesh by position: replicate first, shard last.
    """
    return mesh["dp_replicate", "dp_shard"] if axes.dp_replicate > 1 else mesh["dp_shard"]


def data_view(mesh: DeviceMesh) -> DeviceMesh:
    """The ranks that read different data, as one dimension. Creates a process group."""
    return mesh["dp_replicate", "dp_shard"]._flatten("dp")
