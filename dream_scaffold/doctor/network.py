"""Ports, names, interfaces, and what a launcher has put into the environment."""

import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from .reading import Reading

USUAL_PORT = 29500
INFINIBAND = Path("/sys/class/infiniband")
INTERFACES = Path("/sys/class/net")
OF_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
CHOSEN = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE", "NCCL_DEBUG")


def probe(environment: Mapping[str, str] = os.environ) -> Iterator[Reading]:
    """Readings under the topic `network`."""
    yield from _ports()
    yield from _name()
    yield from _interfaces(environment)
    yield from _launcher(environment)


def _ports() -> Iterator[Reading]:
    for port, name in ((0, "a free port"), (USUAL_PORT, f"port {USUAL_PORT}")):
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError as error:
                if port:
                    text = "is taken, and torchrun without --standalone meets there"
                    remedy = "torchrun --standalone, or --master-port with another one."
                    yield Reading("network", name, "note", text, remedy)
                else:
                    text = f"cannot be opened: {error.strerror}"
                    yield Reading("network", name, "bad", text, "Ranks meet on one: allow it.")
            else:
                yield Reading("network", name, "ok", "can be opened")


def _name() -> Iterator[Reading]:
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError:
        remedy = f"Add `127.0.0.1 {name}` to /etc/hosts, or set GLOO_SOCKET_IFNAME=lo."
        yield Reading("network", "host name", "bad", f"{name} leads to no address", remedy)
    else:
        yield Reading("network", "host name", "ok", f"{name} is {address}")


def _interfaces(environment: Mapping[str, str]) -> Iterator[Reading]:
    there = sorted(path.name for path in INTERFACES.iterdir()) if INTERFACES.is_dir() else []
    if there:
        yield Reading("network", "interfaces", "ok", ", ".join(there))
    if INFINIBAND.is_dir() and (cards := sorted(path.name for path in INFINIBAND.iterdir())):
        yield Reading("network", "InfiniBand", "ok", ", ".join(cards))
    for name in CHOSEN:
        if (value := environment.get(name)) is None:
            continue
        wanted = value.lstrip("^=").split(",") if name.endswith("IFNAME") else []
        # NCCL takes the beginning of a name.
        lost = [w for w in wanted if there and not any(one.startswith(w) for one in there)]
        if lost and not value.startswith("^"):
            text = f"{value}: there is no interface {lost[0]}"
            yield Reading("network", name, "bad", text, f"Use one of {', '.join(there)}.")
        else:
            yield Reading("network", name, "ok", value)


def _launcher(environment: Mapping[str, str]) -> Iterator[Reading]:
    """Whether the variables of torchrun are all there, and what Slurm promises."""
    given = [name for name in OF_TORCHRUN if name in environment]
    missing = [name for name in OF_TORCHRUN if name not in environment]
    if given and missing:
        text = f"{', '.join(given)} set, but not {', '.join(missing)}"
        remedy = f"unset {' '.join(given)}, or launch with torchrun, which sets them all."
        yield Reading("network", "launcher", "bad", text, remedy)
    elif given:
        shown = f"rank {environment['RANK']} of {environment['WORLD_SIZE']}"
        yield Reading("network", "launcher", "ok", f"torchrun: {shown}")
    tasks = environment.get("SLURM_NTASKS", "1")
    if tasks.isdigit() and int(tasks) > 1 and not given:
        text = f"SLURM_NTASKS={tasks}: a run that srun does not start is one process of them"
        yield Reading("network", "Slurm", "note", text, "srun python train.py")
