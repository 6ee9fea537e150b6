"""The record that every run leaves: `runs/<experiment>/log.jsonl`, one object a line."""

import contextlib
import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .logger import Logger

LOG = "log.jsonl"


class JsonlLogger(Logger):
    """Appends lines, each with one write to an unbuffered file: a kill loses none.

    What a kill, or a full disk, cuts off in the middle of a line is removed before the next.
    """

    name = LOG

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / LOG
        repair(path)
        self.file = path.open("ab", buffering=0)
        self.size = path.stat().st_size
        self.is_torn = False

    def event(self, event: str, **fields: Any) -> None:
        self._write({"event": event, "time": time.time(), **fields})

    def log(self, step: int, epoch: int, values: Mapping[str, float]) -> None:
        finite = {k: v if math.isfinite(v) else None for k, v in values.items()}
        self._write({"step": step, "epoch": epoch, "time": time.time(), **finite})

    def close(self, exit_code: int, goes_on: bool = False) -> None:
        with contextlib.suppress(OSError):
            self.event("end" if not exit_code or goes_on else "interrupt")
        self.file.close()

    def _write(self, record: dict[str, Any]) -> None:
        line = json.dumps(record).encode() + b"\n"
        if self.is_torn:
            os.ftruncate(self.file.fileno(), self.size)
        self.is_torn = True
        if self.file.write(line) != len(line):
            raise OSError("the disk took a part of the line")
        self.is_torn = False
        self.size += len(line)


def repair(path: Path) -> None:
    """Remove a last line that was never finished; finish one that lacks its end alone."""
    if not path.exists() or not path.stat().st_size:
        return
    with path.open("rb+") as file:
        tail, start = _last_line(file.fileno(), path.stat().st_size)
        if tail.endswith(b"\n"):
            return
        try:
            json.loads(tail)
        except ValueError:
            file.truncate(start)
        else:
            file.seek(0, os.SEEK_END)
            file.write(b"\n")


def _last_line(file: int, size: int) -> tuple[bytes, int]:
    """The last line of a file and where it begins."""
    tail, start = b"", size
    while start and tail.count(b"\n", 0, -1) == 0:
        step = min(65_536, start)
        start -= step
        tail = os.pread(file, step, start) + tail
    skipped = tail.rfind(b"\n", 0, -1) + 1
    return tail[skipped:], start + skipped
