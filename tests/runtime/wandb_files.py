"""Reads what wandb's client wrote while it was offline: records framed as LevelDB's log is."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK = 32_768
FILE_HEADER = 7
FULL, FIRST, LAST = 1, 2, 4


def frames(path: Path) -> Iterator[bytes]:
    """The records of a .wandb file; their checksums are not looked at."""
    data = path.read_bytes()
    place, whole = FILE_HEADER, b""
    while place + 7 <= len(data):
        left = BLOCK - place % BLOCK
        if left < 7:  # The rest of a block is filled up.
            place += left
            continue
        size = int.from_bytes(data[place + 4 : place + 6], "little")
        kind = data[place + 6]
        whole += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (FULL, LAST):
            yield whole
            whole = b""


def records(path: Path) -> list[Any]:
    """All of them; waits for the last one, which wandb's own process writes in its time."""
    from wandb.proto.wandb_internal_pb2 import Record

    until = time.monotonic() + 10
    while True:
        found = [Record.FromString(frame) for frame in frames(path)]
        if time.monotonic() > until or any(r.WhichOneof("record_type") == "exit" for r in found):
            return found
        time.sleep(0.05)


def history(path: Path) -> list[dict[str, Any]]:
    """The rows that were logged, without wandb's own columns."""
    return [
        {
            name: json.loads(item.value_json)
            for item in record.history.item
            if not (name := item.key or "/".join(item.nested_key)).startswith("_")
        }
        for record in records(path)
        if record.WhichOneof("record_type") == "history"
    ]


def runs(folder: Path) -> list[Path]:
    """The offline runs of a run's folder, oldest first."""
    return sorted(folder.glob("wandb/offline-run-*/*.wandb"), key=lambda p: p.stat().st_mtime_ns)


def only(path: Path, kind: str) -> list[Any]:
    return [getattr(r, kind) for r in records(path) if r.WhichOneof("record_type") == kind]
