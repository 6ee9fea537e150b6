"""Runs of `killed_run` whose processes begin at once: forked from a server with every import."""

import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from tests.conftest import LAUNCHER_VARIABLES, child_environment
from tests.runtime.killed_run import Case, environment
from tests.runtime.traps import Trap

LIMIT = 120
"""Seconds after which a run of a few seconds hangs."""


@dataclass
class Ended:
    """How the processes of a run ended."""

    codes: list[int | None]
    output: str
    hung: bool


class Run:
    """The processes of one attempt of a run, in `folder`."""

    def __init__(
        self,
        case: Case,
        folder: Path,
        *arguments: str,
        traps: tuple[Trap, ...] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.files = [folder / f"output-{rank}.txt" for rank in range(case.ranks)]
        port = free_port()
        context = multiprocessing.get_context("forkserver")
        self.processes: list[ForkServerProcess] = []
        for rank, file in enumerate(self.files):
            own = environment(case, traps) | dict(variables or {})
            if case.ranks > 1:
                own |= _rank_variables(rank, case.ranks, port)
            process = context.Process(target=_work, args=(folder, own, arguments, file))
            process.start()
            self.processes.append(process)

    def kill(self, ranks: list[int], number: int) -> bool:
        """Whether one of them was there to be killed."""
        alive = [self.processes[rank] for rank in ranks if self.processes[rank].is_alive()]
        for process in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid or 0, number)
        return bool(alive)

    def has_said(self, beginning: str) -> bool:
        """Whether rank 0 has printed a line that begins like this."""
        text = self.files[0].read_text() if self.files[0].exists() else ""
        return any(line.startswith(beginning) for line in text.splitlines())

    def wait(self, limit: float = LIMIT) -> Ended:
        """Until all have ended; what hangs is killed, and told."""
        until = time.monotonic() + limit
        for process in self.processes:
            process.join(max(0.0, until - time.monotonic()))
        hung = self.kill(list(range(len(self.processes))), signal.SIGKILL)
        for process in self.processes:
            process.join()
        codes = [process.exitcode for process in self.processes]
        output = "".join(f.read_text() if f.exists() else "" for f in self.files)
        return Ended(codes, output, hung)

    def wait_for_first(self, limit: float = LIMIT) -> None:
        """Until one process has ended."""
        until = time.monotonic() + limit
        while all(process.is_alive() for process in self.processes):
            if time.monotonic() > until:
                return
            time.sleep(0.002)


def _work(
    folder: Path, variables: Mapping[str, str], arguments: tuple[str, ...], file: Path
) -> None:
    """What a forked process does."""
    os.chdir(folder)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.environ.update(variables)
    sys.argv = ["train.py", *arguments]
    from tests.runtime import killed_run

    killed_run.main()


def _rank_variables(rank: int, ranks: int, port: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def fork_server() -> Iterator[None]:
    """Where `Run` forks from; it has the environment of a child, and every import behind it."""
    before = dict(os.environ)
    for name in LAUNCHER_VARIABLES:
        os.environ.pop(name, None)
    os.environ.update(child_environment())
    multiprocessing.set_forkserver_preload(["tests.runtime.killed_run"])
    try:
        forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)
    try:
        first = multiprocessing.get_context("forkserver").Process(target=time.time)
        first.start()  # Answers once everything is imported.
        first.join()
        yield
    finally:
        forkserver._forkserver._stop()  # type: ignore[attr-defined]
