"""From a plain `python train.py` to a process on every device, and out again cleanly."""

import functools
import gc
import os
import sys
import time
import traceback
from collections.abc import Callable
from math import prod
from typing import Any, NoReturn, ParamSpec, TypeVar

import torch.distributed as dist

from ..configs import BaseTrainerConfig, ConfigError, HookError, RunError, Stopped
from ..processes import Process
from ..world import accelerator_count

P = ParamSpec("P")
R = TypeVar("R")

SILENCE_SECONDS = 10

LOST_PEER = ("Connection closed by peer", "Connection reset by peer", "NCCL", "Broken pipe")
"""What a collective says when another rank has gone."""


class StartError(RunError):
    """There is no configuration to run with."""


ON_EVERY_RANK = (ConfigError, HookError, StartError, KeyboardInterrupt)
"""What every rank runs into alike, so that the first one speaks for all."""


def entrypoint(main: Callable[P, R]) -> Callable[P, R | None]:
    """Run `main` on every visible CUDA device, or once where there is at most one.

    Under a launcher (torchrun, Slurm) `main` simply runs. A failure on one rank is
    reported by that rank, once, and ends every process with exit code 1.
    """

    @functools.wraps(main)
    def run(*args: P.args, **kwargs: P.kwargs) -> R | None:
        if not Process.from_environment().launched and (count := accelerator_count()) > 1:
            launch(count)
            return None
        return guarded(main)(*args, **kwargs)

    return run


def train(main: Callable[[Any], object], config: BaseTrainerConfig) -> None:
    """Run `main(config)` on the devices that the configuration asks for."""
    for callback in (*(config.callbacks or ()), *config.extra_callbacks):
        callback.pre_launch(config)
    if (count := processes(config)) > 1:
        launch(count)
    else:
        guarded(main)(config)


def processes(config: BaseTrainerConfig) -> int:
    """How many processes to launch here: one under a launcher or for a single device."""
    if Process.from_environment().launched:
        return 1
    degrees = config.device_parameters.degrees.values()
    fixed = prod(degree for degree in degrees if isinstance(degree, int))
    return 1 if fixed == 1 and "auto" not in degrees else accelerator_count()


def launch(processes: int) -> None:
    """Run this script again under torchrun, on `processes` local processes.

    Ends with the exit code of the first that failed: 75 asks to be started again.
    """
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as torchrun

    try:
        torchrun(["--standalone", f"--nproc-per-node={processes}", *sys.argv])
    except ChildFailedError as error:
        code = error.get_first_failure()[1].exitcode
        sys.exit(code if code > 0 else 128 - code)


def guarded(main: Callable[P, R]) -> Callable[P, R]:
    """`main` with its end taken care of: no rank left waiting, one report of a failure."""

    @functools.wraps(main)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            result = main(*args, **kwargs)
            leave_process_group()
        except Stopped:
            leave_process_group()
            raise
        except SystemExit:
            raise
        except BaseException as error:
            end_with(error)
        return result

    return run


def leave_process_group() -> None:
    """Wait for the other ranks, then close. All ranks take part."""
    if dist.is_initialized():
        gc.collect()  # Modules that outlive the group abort the interpreter at its exit.
        dist.barrier()
        dist.destroy_process_group()


def end_with(error: BaseException) -> NoReturn:
    """Report `error`, if it falls to this rank, and end the process."""
    process = Process.from_environment()
    interrupted = isinstance(error, KeyboardInterrupt)
    silent = not reports(error, process)
    if silent and not interrupted:
        # Who reports ends the job, and this process with it. Should nobody, speak up.
        time.sleep(SILENCE_SECONDS)
    if not (silent and interrupted):
        print(explain(error, process), file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    code = 130 if interrupted else 1
    if process.world_size > 1:
        # Peers may hang in a collective: closing the group in order would wait for them.
        os._exit(code)
    sys.exit(code)


def reports(error: BaseException, process: Process) -> bool:
    """Whether this rank is the one to tell of `error`: the first that failed, alone."""
    if isinstance(error, ON_EVERY_RANK):
        return process.rank == 0
    if process.world_size == 1 or not dist.is_initialized():
        return True
    try:  # A rank that fails by itself has counted before its peers notice that it is gone.
        return dist.distributed_c10d._get_default_store().add("failures", 1) == 1
    except (RuntimeError, ValueError):  # The store went with the rank that kept it.
        return not is_lost_peer(error)


def explain(error: BaseException, process: Process) -> str:
    """What happened: the error's own words where they suffice, else its traceback."""
    rank = f"rank {process.rank}: " if process.world_size > 1 else ""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, ConfigError):
        return f"error: {error} [{error.code}]"
    if isinstance(error, HookError):
        return "\n".join(f"error: {line}" for line in str(error).splitlines()) + error.place
    if isinstance(error, StartError):
        return f"error: {error}"
    if isinstance(error, RunError):
        return f"error: {rank}{error}"
    if is_lost_peer(error):
        return (
            f"error: {rank}another rank is gone without a word. Was it killed, or out of memory?"
        )
    return f"{rank}failed\n{''.join(traceback.format_exception(error))}".removeprefix("failed\n")


def is_lost_peer(error: BaseException) -> bool:
    """Whether a collective failed because another rank has gone."""
    return isinstance(error, RuntimeError) and any(text in str(error) for text in LOST_PEER)
