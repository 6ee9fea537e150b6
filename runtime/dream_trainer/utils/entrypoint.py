"""From a plain `python train.py` to a process on every device, and out again cleanly."""

import functools
import gc
import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn, ParamSpec, TypeVar

import torch.distributed as dist

from ..configs import ConfigError
from ..lifecycle import HookError
from ..world import Process, accelerator_count

P = ParamSpec("P")
R = TypeVar("R")


def entrypoint(main: Callable[P, R]) -> Callable[P, R | None]:
    """Run `main` on every visible CUDA device, or once where there is at most one.

    Under a launcher (torchrun, Slurm) `main` simply runs. A failure on one rank is
    reported by that rank, once, and ends the process with exit code 1.
    """

    @functools.wraps(main)
    def run(*args: P.args, **kwargs: P.kwargs) -> R | None:
        if not Process.from_environment().launched and (count := accelerator_count()) > 1:
            launch(count)
            return None
        return guarded(main)(*args, **kwargs)

    return run


def launch(processes: int) -> None:
    """Run this script again under torchrun, on `processes` local processes."""
    from torch.distributed.run import main as torchrun

    torchrun(["--standalone", f"--nproc-per-node={processes}", *sys.argv])


def guarded(main: Callable[P, R]) -> Callable[P, R]:
    """`main` with its end taken care of: no rank left waiting, one report of a failure."""

    @functools.wraps(main)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            result = main(*args, **kwargs)
        except SystemExit:
            raise
        except BaseException as error:
            _end_with(error)
        leave_process_group()
        return result

    return run


def leave_process_group() -> None:
    """Wait for the other ranks, then close. All ranks take part."""
    if dist.is_initialized():
        gc.collect()  # Modules that outlive the group abort the interpreter at its exit.
        dist.barrier()
        dist.destroy_process_group()


def _end_with(error: BaseException) -> NoReturn:
    process = Process.from_environment()
    code = 130 if isinstance(error, KeyboardInterrupt) else 1
    first = _claim_failure(process, error)
    if first is None:
        _tell(process, error)
    elif first:
        print(f"rank {process.rank}: stopped, because {first}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    if process.world_size > 1:
        # Peers may hang in a collective: closing the group in order would wait for them.
        os._exit(code)
    sys.exit(code)


def _claim_failure(process: Process, error: BaseException) -> str | None:
    """None if this rank is to report `error`, else why it stays silent ("": no word at all)."""
    if isinstance(error, (ConfigError, HookError, KeyboardInterrupt)):
        return None if process.rank == 0 else ""  # The same on every rank.
    if process.world_size == 1 or not dist.is_initialized():
        return None
    try:
        store = dist.distributed_c10d._get_default_store()
        if store.add("failures", 1) == 1:
            store.set("first failure", f"rank {process.rank} failed first: {_brief(error)}")
            return None
        return store.get("first failure").decode()
    except (RuntimeError, ValueError):  # The store is gone, and with it the rank that kept it.
        return None


def _tell(process: Process, error: BaseException) -> None:
    if isinstance(error, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
    elif isinstance(error, (ConfigError, HookError)):
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
    else:
        where = f"rank {process.rank} failed:\n" if process.world_size > 1 else ""
        text = "".join(traceback.format_exception(error))
        print(f"{where}{text}", file=sys.stderr, end="")


def _brief(error: BaseException) -> str:
    line = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {line}" if line else type(error).__name__
