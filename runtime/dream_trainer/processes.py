"""How this process was launched, and how it meets the others."""

import os
import re
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from .configs import Comm, RunError


@dataclass(frozen=True)
class Process:
    """This process as its launcher describes it."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    launcher: str = ""
    """Who says so: "torchrun" (or a like launcher) or "Slurm"; empty for a process on its own."""

    @property
    def launched(self) -> bool:
        return bool(self.launcher)

    @classmethod
    def from_environment(cls) -> "Process":
        """Read torchrun's variables, else Slurm's, else be the only process.

        Raises `RunError` where they contradict each other.
        """
        env = os.environ
        if "RANK" in env and "WORLD_SIZE" in env:
            world_size = _number("WORLD_SIZE")
            return cls(
                rank=_number("RANK", below=world_size),
                world_size=world_size,
                local_rank=_number("LOCAL_RANK", 0),
                local_world_size=_number("LOCAL_WORLD_SIZE", world_size),
                launcher="torchrun",
            )
        if "SLURM_STEP_ID" in env and "SLURM_PROCID" in env:
            world_size = _number("SLURM_NTASKS", 1)
            return cls(
                rank=_number("SLURM_PROCID", below=world_size),
                world_size=world_size,
                local_rank=_number("SLURM_LOCALID", 0),
                local_world_size=max(1, world_size // _number("SLURM_NNODES", 1)),
                launcher="Slurm",
            )
        return cls()


def _number(name: str, default: int | None = None, below: int | None = None) -> int:
    """A whole number of the environment."""
    text = os.environ.get(name)
    if text is None and default is not None:
        return default
    if text is None or not text.isdecimal() or (below is not None and int(text) >= below):
        size = f" below {below}" if below is not None else ""
        raise RunError(
            f"{name}={text!r} in the environment is not a rank{size}, or not a number. "
            "Unset the variables of an earlier launch, or launch with torchrun."
        )
    return int(text)


def doubts(process: Process) -> list[str]:
    """Where Slurm promises another number of processes than there are, in a line each."""
    tasks, per_node = _number("SLURM_NTASKS", 1), _number("SLURM_NTASKS_PER_NODE", 1)
    found = []
    if process.launcher == "" and tasks > 1:
        found.append(
            f"SLURM_NTASKS={tasks}, but this is one process on its own. Launch with srun or "
            "torchrun, or unset it if its shell is an old one."
        )
    if process.launcher == "Slurm" and tasks < per_node:
        found.append(
            f"SLURM_NTASKS={tasks} but SLURM_NTASKS_PER_NODE={per_node}: the job has {tasks} "
            "process. Fix --ntasks."
        )
    return found


def start_process_group(process: Process, device: torch.device, comm: Comm) -> dist.Store | None:
    """Join the other processes. All ranks take part; returns when all have come.

    Returns the store of the job, where it outlives an attempt. Raises `RunError` that says who
    did not come, and why that may be.
    """
    try:
        job_store, store = _stores(process, comm)
        dist.init_process_group(
            # gloo beside NCCL: offloaded gradients and end-of-data flags live on the CPU.
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            store=store,
            rank=process.rank,
            world_size=process.world_size,
            timeout=timedelta(seconds=comm.init_timeout_seconds),
            # No device_id: groups split off NCCL's own communicator would lose gloo.
        )
    except (dist.DistNetworkError, dist.DistStoreError) as error:
        raise RunError(_explained(str(error), process, comm)) from error
    return job_store


def _stores(process: Process, comm: Comm) -> tuple[dist.Store | None, dist.Store]:
    """The store that outlives an attempt, where there is one, and that of this attempt."""
    env = os.environ
    address = _address()
    if process.world_size == 1 and not address:
        return None, dist.HashStore()
    if not address:
        raise RunError(
            f"WORLD_SIZE is {process.world_size}, but MASTER_ADDR is not set. "
            "Launch with torchrun, or export the first node's address as MASTER_ADDR."
        )
    agent_hosts = env.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = dist.TCPStore(
        address,
        _port(),
        process.world_size,
        is_master=process.rank == 0 and not agent_hosts,
        timeout=timedelta(seconds=comm.init_timeout_seconds),
    )
    # A restarted job finds the dead attempt's addresses unless each attempt has its own keys.
    attempt = dist.PrefixStore(f"attempt{env.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    return store if agent_hosts else None, attempt


def _address() -> str:
    return os.environ.get("MASTER_ADDR") or os.environ.get("SLURM_LAUNCH_NODE_IPADDR") or ""


def _port() -> int:
    """Jobs of Slurm that share a node get ports of their own."""
    given = os.environ.get("MASTER_PORT")
    return _number("MASTER_PORT") if given else 20_000 + _number("SLURM_JOB_ID", 0) % 20_000


def _explained(text: str, process: Process, comm: Comm) -> str:
    """What keeps the processes from meeting, in one line."""
    place = f"{_address()}:{_port()}"
    if "EADDRINUSE" in text:
        return (
            f"Port {_port()} of this machine is taken, perhaps by another run. Choose another by "
            "MASTER_PORT, or let torchrun do so: --standalone."
        )
    if came := re.search(r"(\d+)/(\d+) clients joined", text):
        says = {"Slurm": "SLURM_NTASKS", "torchrun": "WORLD_SIZE"}.get(process.launcher, "")
        remedy = {
            "Slurm": "Launch with srun, or unset SLURM_STEP_ID if its shell is an old one.",
            "torchrun": "Launch every node, or unset RANK and WORLD_SIZE of an earlier launch.",
        }.get(process.launcher, "Launch with torchrun.")
        return (
            f"{came[1]} of {came[2]} processes came to {place} within "
            f"{comm.init_timeout_seconds} s ({says}={process.world_size}). {remedy}"
        )
    return (
        f"Rank 0 could not be reached at {place} within {comm.init_timeout_seconds} s. "
        "Check MASTER_ADDR, MASTER_PORT and the firewall, and that rank 0 is running."
    )
