"""Torch and the devices that it sees; torch is asked in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .reading import Reading, size

PATIENCE = 60
"""Seconds that importing torch may take: the first time, from a slow disk."""

OLDEST = (2, 13)
INSTALL = "pip install torch"


def ask_torch() -> dict[str, Any] | str:
    """What torch says of this machine, or why it says nothing."""
    command = [sys.executable, str(Path(__file__).with_name("torch_probe.py"))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return f"importing torch took more than {PATIENCE} seconds"
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"]
        return said[-1]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def probe(
    asked: dict[str, Any] | str, environment: Mapping[str, str] = os.environ
) -> Iterator[Reading]:
    """Readings under the topic `devices`, from what `ask_torch` returned."""
    if isinstance(asked, str):
        missing = "No module named 'torch'" in asked
        text = "is not installed" if missing else asked
        yield Reading("devices", "torch", "bad", text, INSTALL if missing else "Install it anew.")
        return
    version = tuple(int(part) for part in asked["version"].split("+")[0].split(".")[:2])
    build = asked["cuda_build"] and f"CUDA {asked['cuda_build']}"
    build = build or (asked["hip_build"] and f"ROCm {asked['hip_build']}") or "CPU only"
    shown = f"{asked['version']}, {build}"
    if version < OLDEST:
        remedy = f"{INSTALL}>={'.'.join(map(str, OLDEST))}"
        yield Reading("devices", "torch", "bad", shown, remedy)
    else:
        yield Reading("devices", "torch", "ok", shown)
    yield from _devices(asked, environment)
    if asked["devices"] and not asked["nccl"]:
        remedy = "Install a build of torch with NCCL."
        yield Reading("devices", "NCCL", "bad", "this torch has none", remedy)
    elif asked.get("nccl_version"):
        yield Reading("devices", "NCCL", "ok", asked["nccl_version"])
    if not asked["gloo"]:
        remedy = "Install a build of torch with gloo."
        yield Reading("devices", "gloo", "bad", "this torch has none", remedy)


def _devices(asked: dict[str, Any], environment: Mapping[str, str]) -> Iterator[Reading]:
    for index, device in enumerate(asked["devices"]):
        memory = f"{size(device['free'])} free of {size(device['total'])}"
        text = f"{device['name']}, {memory}, capability {device['capability']}"
        busy = device["free"] < 0.8 * device["total"]
        remedy = "Another process holds the rest: nvidia-smi shows which." if busy else ""
        yield Reading("devices", f"cuda:{index}", "note" if busy else "ok", text, remedy)
    if asked["devices"]:
        yield from _links(asked["devices"])
        return
    driver = shutil.which("nvidia-smi")
    hidden = environment.get("CUDA_VISIBLE_DEVICES")
    if asked["mps"]:
        yield Reading("devices", "mps", "ok", "one Apple GPU: runs are one process")
    elif hidden is not None and hidden.strip() in ("", "-1") and driver:
        text = f"CUDA_VISIBLE_DEVICES={hidden!r} hides every GPU"
        yield Reading("devices", "accelerator", "note", text, "unset CUDA_VISIBLE_DEVICES")
    elif driver and not asked["cuda_build"]:
        text = "there is an NVIDIA driver, and this torch is built for the CPU only"
        yield Reading("devices", "accelerator", "bad", text, "Install a CUDA build of torch.")
    elif driver:
        text = "there is an NVIDIA driver, and torch sees no GPU"
        yield Reading("devices", "accelerator", "bad", text, "Compare nvidia-smi with the build.")
    else:
        yield Reading("devices", "accelerator", "note", "none: runs are on the CPU, over gloo")


def _links(devices: list[dict[str, Any]]) -> Iterator[Reading]:
    """How the GPUs of this machine reach each other, as far as it can be seen."""
    if len(devices) < 2:
        return
    apart = [i for i, device in enumerate(devices) if len(device["peers"]) < len(devices) - 1]
    if apart:
        shown = ", ".join(map(str, apart))
        text = f"GPUs {shown} cannot read each other's memory: collectives go through the host"
        yield Reading("devices", "peer access", "note", text, "Keep tensor_parallel at 1.")
    else:
        yield Reading("devices", "peer access", "ok", "between all GPUs")
    if (smi := shutil.which("nvidia-smi")) is not None:
        done = subprocess.run([smi, "topo", "-m"], capture_output=True, text=True, timeout=20)
        links = {
            word for word in done.stdout.split() if word.startswith("NV") and word[2:].isdigit()
        }
        text = f"NVLink ({', '.join(sorted(links))})" if links else "PCIe, no NVLink"
        yield Reading("devices", "links", "ok" if links else "note", text)
