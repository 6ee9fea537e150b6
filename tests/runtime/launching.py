"""Runs of `killed_run` under a real torchrun, which restarts and is killed."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.conftest import child_environment, end_family, run_bounded
from tests.runtime.forked import LIMIT
from tests.runtime.killed_run import Case, environment
from tests.runtime.killing import Bench
from tests.runtime.remains import differences, left_over, logged_steps
from tests.runtime.traps import Trap

SCRIPT = Path(__file__).with_name("killed_run.py")


def command(case: Case, *arguments: str, restarts: int = 0) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    sizes = [f"--nproc-per-node={case.ranks}", f"--max-restarts={restarts}"]
    return [*launcher, *sizes, str(SCRIPT), *arguments]


def torchrun(
    case: Case, folder: Path, *arguments: str, restarts: int = 0, traps: tuple[Trap, ...] = ()
) -> subprocess.CompletedProcess[str]:
    folder.mkdir(parents=True, exist_ok=True)
    line = command(case, *arguments, restarts=restarts)
    return run_bounded(line, cwd=folder, timeout=LIMIT, env=environment(case, traps))


def interrupted(
    case: Case, folder: Path, step: int, strike: Callable[["subprocess.Popen[str]"], None]
) -> tuple[int, str]:
    """Exit code and output of a torchrun that `strike` hits once `step` is logged."""
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / "output.txt"
    with output.open("w") as file:
        process = subprocess.Popen(
            command(case),
            cwd=folder,
            env=child_environment() | environment(case),
            stdout=file,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    try:
        until = time.monotonic() + LIMIT
        while logged_steps(folder) < step:
            if time.monotonic() > until or process.poll() is not None:
                raise TimeoutError(f"step {step} never came:\n{output.read_text()}")
            time.sleep(0.01)
        strike(process)
        code = process.wait(LIMIT)
    finally:
        end_family(process)
    return code, output.read_text()


def events(folder: Path, name: str = "run") -> list[str]:
    """The events of a log, in order."""
    lines = (folder / "runs" / name / "log.jsonl").read_text().splitlines()
    return [record["event"] for record in map(json.loads, lines) if "event" in record]


def restarted(bench: Bench, case: Case, kills: int) -> list[str]:
    """What is wrong with a job of which torchrun's every attempt but the last loses a rank."""
    log, _ = bench.reference(case)
    folder = bench.folder()
    traps = tuple(
        Trap(point="step", count=7 + 6 * attempt, rank=(attempt + 1) % case.ranks, attempt=attempt)
        for attempt in range(kills)
    )
    done = torchrun(case, folder, restarts=kills, traps=traps)
    if done.returncode:
        return [f"exit code {done.returncode}: {done.stderr}"]
    (run,) = (folder / "runs").iterdir()  # One name for all attempts.
    problems = differences(folder, log, run.name) + left_over(folder, run.name)
    if events(folder, run.name).count("start") != kills + 1:
        problems.append(f"not {kills} restarts: {events(folder, run.name)}")
    if (resumed := done.stdout.count("resume: step")) != kills:
        problems.append(f"resumed {resumed} times: {done.stdout}")
    return problems
