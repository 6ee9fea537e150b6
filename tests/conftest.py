"""What all tests share: a clean process world, a pretended one, and real ones under torchrun."""

import contextlib
import functools
import gc
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]

LAUNCHER_VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_USE_AGENT_STORE",
    "SLURM_PROCID",
    "SLURM_STEP_ID",
    "SLURM_NTASKS",
    "SLURM_NNODES",
    "SLURM_LOCALID",
    "SLURM_JOB_ID",
    "SLURM_LAUNCH_NODE_IPADDR",
)


@pytest.fixture(autouse=True)
def tidy_world(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No launcher before a test, no process group after it."""
    for name in LAUNCHER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    yield
    close_process_group()


def close_process_group() -> None:
    if "torch.distributed" not in sys.modules:
        return
    import torch.distributed as dist

    if dist.is_initialized():
        gc.collect()
        gc.freeze()  # What is left, torch above all, would cost every test a tenth of a second.
        dist.destroy_process_group()
        forget_meshes()


def forget_meshes() -> None:
    """Empty DTensor's caches: they hold meshes, and with them the rank of an earlier world."""
    if "torch.distributed.tensor" not in sys.modules:
        return
    from dream_trainer.simulate import pretence

    pretence.forget_meshes()


@pytest.fixture
def fake_world(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[int, int], contextlib.AbstractContextManager[None]]:
    """`with fake_world(rank, size):` is rank `rank` of `size`; collectives do nothing."""

    @contextlib.contextmanager
    def open_world(rank: int, size: int) -> Iterator[None]:
        import torch.distributed as dist
        from torch.testing._internal.distributed.fake_pg import FakeStore

        # The pretended group would read the size of the pickled objects from garbage.
        monkeypatch.setattr(dist, "broadcast_object_list", lambda *args, **kwargs: None)
        dist.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())
        try:
            yield
        finally:
            close_process_group()

    return open_world


@pytest.fixture
def torchrun(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`torchrun(nproc, script, *args, cwd=, timeout=)` runs a script on real processes."""
    return functools.partial(run_torchrun, cwd=tmp_path)


def run_torchrun(
    nproc: int,
    script: Path | str,
    *args: object,
    cwd: Path,
    timeout: float = 120,
    env: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """The same for fixtures of a wider scope."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*launcher, f"--nproc-per-node={nproc}", str(script), *map(str, args)]
    return run_bounded(command, cwd=cwd, timeout=timeout, env=env)


HEAP_ERRORS = (
    *("malloc(): ", "free(): ", "corrupted double-linked list", "double free or "),
    "(SIGSEGV)",
)
"""What the C library and torchrun say of a process whose memory is damaged."""


def run_bounded(
    command: list[str], *, cwd: Path, timeout: float, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `command`; past `timeout` seconds end it and everything it started.

    torch 2.13's functional gathers over gloo, which tensor parallelism uses on the CPU, damage
    memory now and then on a loaded machine. Such a launch is made once more, with a warning.
    Raises `TimeoutError` with the output so far.
    """
    done = run_once(command, cwd, timeout, env)
    if done.returncode and any(error in done.stderr for error in HEAP_ERRORS):
        warnings.warn(f"aborted by damaged memory, run again: {' '.join(command)}", stacklevel=2)
        done = run_once(command, cwd, timeout, env)
    return done


def run_once(
    command: list[str], cwd: Path, timeout: float, env: dict[str, str] | None
) -> subprocess.CompletedProcess[str]:
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=child_environment() | (env or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired as error:
        end_family(process)
        stdout, stderr = process.communicate()
        told = f"{' '.join(command)}\nstdout:\n{stdout}\nstderr:\n{stderr}"
        raise TimeoutError(f"Not done after {timeout:g} s: {told}") from error
    except BaseException:
        end_family(process)
        raise
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def child_environment() -> dict[str, str]:
    own = {k: v for k, v in os.environ.items() if k not in LAUNCHER_VARIABLES}
    paths = [str(ROOT / "runtime"), str(ROOT)]
    return own | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TERM": "dumb",
        "COLUMNS": "120",
    }


def end_family(process: "subprocess.Popen[str]") -> None:
    """Kill a process and its descendants; torchrun's workers have sessions of their own."""
    for pid in [*descendants(process.pid), process.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found: list[int] = []
    queue: list[Any] = [pid]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found
