"""Moments at which a process sends itself a signal, set from outside of the product."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Trap:
    """Where the process sends itself a signal."""

    point: str
    count: int = 1
    """At which save, prune or load; of "step" and "validation" after how many steps."""

    rank: int = 0
    attempt: int = 0
    """In which attempt of torchrun's."""

    signal: int = signal.SIGKILL


POINTS = (
    "data",  # half of a tensor's bytes are written
    "metadata",  # all data are there
    "manifest",  # DCP's metadata are there too
    "half-manifest",
    "rename",  # the manifest is there too
    "renamed",  # published, the folder above not yet flushed
    "prune",  # of a checkpoint that goes, the manifest has gone
    "pruning",  # and one file more
)
"""Moments of a save at which a process can be killed."""

OF_A_RESUME = ("clean", "load")

armed: dict[str, list[Trap]] = {}
reached: dict[str, int] = {}


def is_due(point: str, count: int | None = None) -> Trap | None:
    """The trap at `point`, once it has been reached often enough, or at `count`."""
    reached[point] = reached.get(point, 0) + 1 if count is None else count
    due = [trap for trap in armed.get(point, ()) if trap.count == reached[point]]
    return due[0] if due else None


def reach(point: str, count: int | None = None) -> None:
    if trap := is_due(point, count):
        armed[point].remove(trap)
        os.kill(os.getpid(), trap.signal)


def patched(owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """Put the decorated function, called with the original one first, in its place."""
    original = getattr(owner, name)

    def put(change: Callable[..., Any]) -> None:
        setattr(owner, name, lambda *args, **kwargs: change(original, *args, **kwargs))

    return put


def set_traps(traps: list[Trap]) -> None:
    rank, attempt = (int(os.environ.get(n, 0)) for n in ("RANK", "TORCHELASTIC_RESTART_COUNT"))
    for trap in traps:
        if trap.rank == rank and trap.attempt == attempt:
            armed.setdefault(trap.point, []).append(trap)
    if armed.keys() - {"step", "validation"}:
        trap_writing()
        trap_removing()


def trap_writing() -> None:
    from dream_trainer.checkpoint import restore, writer
    from dream_trainer.checkpoint.store import Store

    halving = False

    @patched(writer._Publishing, "write_data")
    def write_data(original: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal halving
        if is_due("behind"):
            time.sleep(0.5)  # The signal comes in the midst of a long save.
            reach("behind", reached["behind"])
            time.sleep(0.5)
        halving = is_due("data") is not None
        return original(*args, **kwargs)

    @patched(writer.Counted, "write")
    def write(original: Any, self: Any, data: Any) -> Any:
        if halving and len(data) > 100:
            self.file.write(bytes(data)[: len(data) // 2])
            self.file.flush()
            reach("data", reached["data"])
        return original(self, data)

    @patched(writer._Publishing, "finish")
    def finish(original: Any, *args: Any, **kwargs: Any) -> Any:
        reach("metadata")
        return original(*args, **kwargs)

    @patched(Store, "write")
    def write_manifest(original: Any, self: Any, name: str, data: bytes) -> None:
        reach("manifest")
        if is_due("half-manifest"):
            original(self, name, data[: len(data) // 2])
            reach("half-manifest", reached["half-manifest"])
        original(self, name, data)

    @patched(Store, "rename")
    def rename(original: Any, *args: Any, **kwargs: Any) -> None:
        reach("rename")
        original(*args, **kwargs)
        reach("renamed")

    @patched(restore, "load_optimizers")
    def load_optimizers(original: Any, *args: Any, **kwargs: Any) -> None:
        reach("load")
        original(*args, **kwargs)


def trap_removing() -> None:
    from fsspec.implementations.local import LocalFileSystem

    from dream_trainer.checkpoint.store import Store

    unlink = os.unlink

    def die_at_second(point: str) -> None:
        reached["unlinked"] = 0

        def remove(*args: Any, **kwargs: Any) -> None:
            reached["unlinked"] += 1
            if reached["unlinked"] == 2:
                reach(point, reached[point])
            unlink(*args, **kwargs)

        os.unlink = remove

    @patched(Store, "remove")
    def remove(original: Any, self: Any, folder: str, first: str | None = None) -> None:
        if first is None:
            if is_due("clean"):
                die_at_second("clean")
        elif is_due("prune"):
            LocalFileSystem.rm = lambda *_, **__: reach("prune", reached["prune"])
        elif is_due("pruning"):
            die_at_second("pruning")
        original(self, folder, first)
