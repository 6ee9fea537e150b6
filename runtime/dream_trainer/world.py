"""The processes of a run: which one this is, on what device, in which mesh."""

import socket
import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from .configs import Axes, DeviceParameters, RunError, resolve_axes
from .mesh import build_mesh, flattened, shard_view
from .processes import Process, doubts, start_process_group


class World:
    """Process, device and mesh of this rank.

    `mesh`, `loss_mesh` and `coordinate` (axis -> this rank's place on it) are there once
    `connect` has run.

    Raises `ConfigError` where the mesh does not fit the launched processes; this
    happens before any process waits for another.
    """

    mesh: DeviceMesh
    coordinate: dict[str, int]
    loss_mesh: DeviceMesh
    job_store: dist.Store | None = None

    replica_group = 0
    """Which of the jobs this is that train one model, each on a mesh of its own."""

    replica_groups = 1

    def __init__(self, parameters: DeviceParameters) -> None:
        self.process = process = Process.from_environment()
        self.is_simulated = dist.is_initialized() and dist.get_backend() == "fake"
        """Whether a dry run pretends the other ranks: collectives then bring garbage."""

        if dist.is_initialized():
            self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        else:
            self.rank, self.world_size = process.rank, process.world_size
        self.local_rank = process.local_rank
        self.parameters = parameters
        # One process knows no node: a group that is already there counts as a single one.
        local_world_size = process.local_world_size if process.launched else self.world_size
        self.axes: Axes = resolve_axes(parameters, self.world_size, local_world_size)
        self.device = (
            torch.device("cpu")
            if self.is_simulated
            else pick_device(self.local_rank, self.world_size)
        )

    def connect(self) -> None:
        """Join the process group and build the mesh. All ranks take part."""
        if not dist.is_initialized():
            comm = self.parameters.comm
            self.job_store = start_process_group(self.process, self.device, comm)
            for doubt in doubts(self.process) if self.rank == 0 else ():
                print(f"warning: {doubt}", file=sys.stderr, flush=True)
        mesh_device = "cpu" if self.device.type == "mps" else self.device.type
        self.hosts = self._hosts()
        self.mesh = build_mesh(self.axes, self.parameters, mesh_device)
        names = self.mesh.mesh_dim_names or ()
        self.coordinate = {
            axis: self.mesh.get_local_rank(axis) if axis in names else 0
            for axis in self.axes.sizes
        }
        self.groups = [self.mesh.get_group(axis) for axis in names]
        self.loss_mesh = flattened(self.mesh, ("dp_replicate", "dp_shard", "cp"))
        self.groups.append(self.loss_group)
        self.set_timeout(self.parameters.comm.init_timeout_seconds)

    def _hosts(self) -> list[str]:
        """The machines of the run, in the order of ranks. All ranks take part."""
        own = socket.gethostname()
        if self.is_simulated or self.world_size == self.process.local_world_size:
            return [own]
        everyone: list[tuple[int, str]] = [(0, "")] * self.world_size
        dist.all_gather_object(everyone, (self.local_rank, own))
        return [name for local_rank, name in everyone if local_rank == 0]

    @property
    def is_rank_zero(self) -> bool:
        return self.rank == 0

    @property
    def dp_size(self) -> int:
        """How many ranks read different data."""
        return self.axes.dp_size * self.replica_groups

    @property
    def dp_rank(self) -> int:
        """Which share of the data this rank reads, from 0."""
        own = self.coordinate["dp_replicate"] * self.axes.dp_shard + self.coordinate["dp_shard"]
        return self.replica_group * self.axes.dp_size + own

    @property
    def loss_size(self) -> int:
        """How many ranks compute different parts of the loss: those of dp, and those of cp."""
        return self.axes.dp_size * self.axes.cp

    @property
    def pp_group(self) -> dist.ProcessGroup | None:
        """The ranks that hold the other stages, where there are any."""
        return self.mesh.get_group("pp") if self.axes.pp > 1 else None

    @property
    def loss_group(self) -> dist.ProcessGroup:
        """The ranks that compute different parts of the loss."""
        return self.loss_mesh.get_group()

    def fsdp_config(self) -> dict[str, Any]:
        """The keyword arguments for every `fully_shard`: mesh, precision, offload, resharding."""
        from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy

        config: dict[str, Any] = {
            "mesh": shard_view(self.mesh),
            "mp_policy": MixedPrecisionPolicy(
                param_dtype=as_dtype(self.parameters.param_dtype),
                reduce_dtype=as_dtype(self.parameters.reduce_dtype),
            ),
        }
        if self.axes.pp > 1:  # A stage runs once a microbatch: not gathered again for each.
            config["reshard_after_forward"] = False
        if self.parameters.cpu_offload:
            config["offload_policy"] = CPUOffloadPolicy(pin_memory=self.device.type == "cuda")
        return config

    def broadcast(self, value: Any) -> Any:
        """Rank 0's `value`, on every rank. All ranks take part."""
        if self.world_size == 1 or self.is_simulated:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def settle(self, name: str, value: str) -> str:
        """What rank 0 called `value` in the first attempt of this job, on every rank.

        torchrun keeps its store when it restarts the job. All ranks take part.
        """
        if self.rank == 0 and self.job_store is not None:
            value = self.job_store.compare_set(f"dream/{name}", "", value).decode()
        return str(self.broadcast(value))

    def set_timeout(self, seconds: int) -> None:
        """How long a collective waits for other ranks. New groups do not inherit it."""
        if self.world_size > 1 and not self.is_simulated:
            for group in (*self.groups, dist.group.WORLD):
                dist.distributed_c10d._set_pg_timeout(timedelta(seconds=seconds), group)


def as_dtype(name: Any) -> torch.dtype:
    """A dtype from the name that `DeviceParameters` keeps."""
    dtype = getattr(torch, str(name))
    if not isinstance(dtype, torch.dtype):
        raise RunError(f"{name!r} is not the name of a torch dtype.")
    return dtype


def accelerator_count() -> int:
    """How many CUDA devices this process sees."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def pick_device(local_rank: int, world_size: int) -> torch.device:
    """This rank's CUDA device, else MPS for a single process, else the CPU.

    Raises `RunError` where a node runs more processes than it has devices.
    """
    if count := accelerator_count():
        if local_rank >= count:
            raise RunError(
                f"local rank {local_rank} has no device: {count} visible on this node. "
                f"Launch with --nproc-per-node={count}."
            )
        torch.cuda.set_device(local_rank)
        return torch.device("cuda", local_rank)
    if world_size == 1 and torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")
