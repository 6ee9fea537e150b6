"""Two processes that meet and add up: whether collectives work on this machine at all."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .reading import Reading

PATIENCE = 60
WORKER = Path(__file__).with_name("smoke_worker.py")


def probe(asked: dict[str, Any] | str) -> Iterator[Reading]:
    """Readings under the topic `collectives`; `asked` is what torch said of the machine."""
    if isinstance(asked, str):
        yield Reading("collectives", "smoke test", "note", "not tried: torch cannot be imported")
        return
    if asked["gloo"]:
        yield _tried("gloo")
    if asked["nccl"] and len(asked["devices"]) > 1:
        yield _tried("nccl")


def _tried(backend: str) -> Reading:
    name = f"{backend}, 2 processes"
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    } | {"OMP_NUM_THREADS": "1"}
    port = _free_port()
    workers = [
        subprocess.Popen(
            [sys.executable, str(WORKER), str(rank), str(port), backend],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in range(2)
    ]
    try:
        said = [worker.communicate(timeout=PATIENCE) for worker in workers]
    except subprocess.TimeoutExpired:
        text = f"the processes did not meet within {PATIENCE} seconds"
        remedy = "A firewall or a wrong interface: try GLOO_SOCKET_IFNAME=lo."
        return Reading("collectives", name, "bad", text, remedy)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    failed = [
        errors for worker, (_, errors) in zip(workers, said, strict=True) if worker.returncode
    ]
    if failed:
        lines = failed[0].strip().splitlines() or ["it ended without a word"]
        remedy = "Run it again with TORCH_DISTRIBUTED_DEBUG=DETAIL and NCCL_DEBUG=INFO."
        text = lines[-1] if lines else "a process ended without a word"
        return Reading("collectives", name, "bad", text, remedy)
    right, milliseconds = said[0][0].split()
    if right != "True":
        text = "an all-reduce gave a wrong sum"
        return Reading("collectives", name, "bad", text, "Do not train on this machine.")
    return Reading("collectives", name, "ok", f"all-reduce of 4 MiB in {milliseconds} ms")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
