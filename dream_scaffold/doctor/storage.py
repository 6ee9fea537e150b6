"""Where runs and checkpoints are written."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .reading import Reading, size

LEAST_FREE = 2 << 30
"""Bytes below which a run soon fills the disk."""

SHARED = {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "cephfs", "fuse.glusterfs", "cifs", "smb3"}
MOUNTS = Path("/proc/mounts")


def probe(folder: Path) -> Iterator[Reading]:
    """Readings under the topic `storage`, of the folder that runs are written to."""
    name = os.fspath(folder)
    there = next(up for up in (folder, *folder.parents) if up.is_dir())
    try:
        with tempfile.TemporaryDirectory(prefix=".dream-doctor-", dir=there) as made:
            _commit(Path(made))
    except OSError as error:
        remedy = (
            "Choose another place: checkpoint_parameters.root_dir, logging_parameters.root_dir."
        )
        yield Reading("storage", name, "bad", f"cannot be written: {error.strerror}", remedy)
        return
    yield Reading("storage", name, "ok", "files can be written, synced and renamed")
    free = shutil.disk_usage(there).free
    if free < LEAST_FREE:
        yield Reading("storage", "room", "bad", f"{size(free)} free", "Remove old runs.")
    else:
        yield Reading("storage", "room", "ok", f"{size(free)} free")
    kind = file_system(there)
    if kind in SHARED:
        yield Reading("storage", "file system", "ok", f"{kind}: all nodes may share it")
    elif kind:
        text = f"{kind}: of this machine alone, as far as it can be seen"
        remedy = "On several nodes, checkpoints need a folder that all of them share."
        yield Reading("storage", "file system", "note", text, remedy)


def _commit(folder: Path) -> None:
    """What a checkpoint does: write, sync, rename a file and a folder."""
    (folder / "stage").mkdir()
    with (folder / "stage" / "part").open("wb") as file:
        file.write(b"x" * 4096)
        file.flush()
        os.fsync(file.fileno())
    os.replace(folder / "stage" / "part", folder / "stage" / "whole")
    os.rename(folder / "stage", folder / "step-1")


def file_system(folder: Path) -> str:
    """The kind of file system that a folder lies on; empty where it cannot be seen."""
    if not MOUNTS.exists():
        return ""
    rows = [line.split() for line in MOUNTS.read_text().splitlines()]
    resolved = folder.resolve()
    best = max(
        (row for row in rows if len(row) > 2 and resolved.is_relative_to(_path(row[1]))),
        key=lambda row: len(row[1]),
        default=None,
    )
    return best[2] if best is not None else ""


def _path(text: str) -> str:
    return text.replace("\\040", " ")
