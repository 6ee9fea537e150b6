"""Python, processors, memory, limits."""

import os
import platform
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from .reading import Reading, size

OLDEST = (3, 11)
LEAST_SHM = 1 << 30
"""Bytes of /dev/shm below which loaders with many workers run out."""

LEAST_FILES = 4096
MEMINFO = Path("/proc/meminfo")
SHM = Path("/dev/shm")


def probe(environment: Mapping[str, str] = os.environ) -> Iterator[Reading]:
    """Readings under the topic `machine`."""
    version = sys.version_info[:3]
    shown = f"{'.'.join(map(str, version))} ({sys.executable})"
    if version[:2] < OLDEST:
        yield Reading("machine", "python", "bad", shown, "Use Python 3.11 or newer.")
    else:
        yield Reading("machine", "python", "ok", shown)
    yield Reading("machine", "system", "ok", f"{platform.system()} {platform.machine()}")
    yield from _processors(environment)
    yield from _memory()
    yield from _limits()


def _processors(environment: Mapping[str, str]) -> Iterator[Reading]:
    count = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else count
    few = f" of {count}" if usable < count else ""
    yield Reading("machine", "processors", "ok", f"{usable}{few} usable")
    threads = environment.get("OMP_NUM_THREADS")
    if threads is None:
        text = "not set: every process takes all processors"
        remedy = f"On the CPU, with N processes: OMP_NUM_THREADS=max(1, {usable} // N)."
        yield Reading("machine", "OMP_NUM_THREADS", "note", text, remedy)
    elif not threads.isdigit() or int(threads) < 1:
        remedy = "Set it to a whole number from 1."
        yield Reading("machine", "OMP_NUM_THREADS", "bad", repr(threads), remedy)
    else:
        yield Reading("machine", "OMP_NUM_THREADS", "ok", threads)


def _memory() -> Iterator[Reading]:
    if MEMINFO.exists():
        rows = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines() if ":" in line)
        total, free = (int(rows[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
        yield Reading("machine", "memory", "ok", f"{size(free)} free of {size(total)}")
    if SHM.is_dir():
        room = os.statvfs(SHM)
        free = room.f_bavail * room.f_frsize
        if free < LEAST_SHM:
            remedy = "Give the container more: --shm-size=8g, or an emptyDir of medium Memory."
            text = f"{size(free)} free: loaders with workers pass batches through it"
            yield Reading("machine", "/dev/shm", "bad", text, remedy)
        else:
            yield Reading("machine", "/dev/shm", "ok", f"{size(free)} free")


def _limits() -> Iterator[Reading]:
    try:
        import resource
    except ImportError:
        return  # Windows has none.
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files < LEAST_FILES and files != resource.RLIM_INFINITY:
        remedy = f"ulimit -n {LEAST_FILES if most == -1 else min(most, 65536)}"
        text = f"{files}: each worker of a loader takes some"
        yield Reading("machine", "open files", "note", text, remedy)
    else:
        yield Reading("machine", "open files", "ok", str(files))
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    shown = "unlimited" if locked == resource.RLIM_INFINITY else size(locked)
    few = locked != resource.RLIM_INFINITY and Path("/sys/class/infiniband").is_dir()
    state, remedy = ("bad", "InfiniBand needs ulimit -l unlimited.") if few else ("ok", "")
    yield Reading("machine", "locked memory", state, shown, remedy)  # type: ignore[arg-type]
