"""Axis sizes -> the device mesh and the views of it that hooks receive."""

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from .configs import Axes, DeviceParameters


def build_mesh(axes: Axes, parameters: DeviceParameters, device_type: str) -> DeviceMesh:
    """The axes that are in use, outermost first. All ranks take part.

    An axis of size 1 is left out: its groups, one for each rank, would take thousands of
    rendezvous on a large cluster. Hooks that are forced on one rank still get theirs.
    """
    forced = {"dp_shard": parameters.force_fsdp, "dp_replicate": parameters.force_ddp}
    sizes = {axis: n for axis, n in axes.sizes.items() if n > 1 or forced.get(axis)}
    if not sizes.keys() & {"dp_replicate", "dp_shard", "cp"}:
        sizes = {axis: sizes.get(axis, 1) for axis in axes.sizes if axis in {*sizes, "dp_shard"}}
    return init_device_mesh(device_type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))


def shard_view(mesh: DeviceMesh) -> DeviceMesh:
    """What `fully_shard` takes: the ranks that shard or, replicated over groups, two dims.

    Context-parallel ranks shard as well: they hold the same weights and other tokens.
    `fully_shard` reads a two-dimensional mesh by position: replicate first, shard last.
    All ranks take part.
    """
    shard = flattened(mesh, ("dp_shard", "cp"))
    if "dp_replicate" not in _names(mesh):
        return shard
    return DeviceMesh._concatenate([mesh["dp_replicate"], shard])


def flattened(mesh: DeviceMesh, axes: tuple[str, ...]) -> DeviceMesh:
    """Those of `axes` that are in use, as one dimension. All ranks take part."""
    present = tuple(axis for axis in axes if axis in _names(mesh))
    if len(present) == 1:
        return mesh[present[0]]
    return mesh[present]._flatten("_".join(present))


def _names(mesh: DeviceMesh) -> tuple[str, ...]:
    return mesh.mesh_dim_names or ()
