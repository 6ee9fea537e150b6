"""Signals, time limits and torchrun's restarts: the run saves, ends in order, and goes on."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import descendants
from tests.runtime.forked import Ended, Run, fork_server
from tests.runtime.killed_run import Case
from tests.runtime.killing import STOPPED, Bench, resumption
from tests.runtime.launching import events, interrupted, restarted, torchrun
from tests.runtime.remains import differences, left_over, logged_steps, published, read_log
from tests.runtime.traps import Trap

ALONE = Case(loader="samples", window=2)
STREAM = Case(loader="stream", val_every=None, behind=True)
PAIR = Case(mesh="fsdp", loader="text")
PAIR_BEHIND = Case(mesh="fsdp", loader="text", behind=True)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with fork_server():
        yield Bench(tmp_path_factory.mktemp("preemption"))


def stopped(bench: Bench, case: Case, trap: Trap, code: int = STOPPED) -> tuple[Path, Ended]:
    """A run that ended in order, with everything saved, because of `trap`."""
    folder = bench.folder()
    restarts = {} if code else {"TORCHELASTIC_MAX_RESTARTS": "3"}
    ended = Run(bench.with_project(case), folder, traps=(trap,), variables=restarts).wait()
    told = f"{ended.codes}\n{ended.output}"
    assert ended.codes == [code] * case.ranks, told
    assert not ended.hung
    assert f"{signal.Signals(trap.signal).name}: saving step" in ended.output, told
    assert published(folder)[0].manifest.step == logged_steps(folder), told
    assert left_over(folder) == []
    return folder, ended


def goes_on(bench: Bench, case: Case, folder: Path) -> str:
    """The output of the rest of the run, which logs what an undisturbed run does."""
    case = bench.with_project(case)
    ended = Run(case, folder, *resumption(folder)).wait()
    assert ended.codes == [0] * case.ranks, ended.output
    assert differences(folder, bench.reference(case)[0]) == []
    assert left_over(folder) == []
    return ended.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("case", [ALONE, STREAM, PAIR], ids=lambda case: str(case))
def test_signal_in_training(bench: Bench, case: Case, number: int) -> None:
    # Of two ranks only the second one is asked: both must agree on the same step.
    trap = Trap(point="step", count=7, rank=case.ranks - 1, signal=number)
    folder, _ = stopped(bench, case, trap)
    assert 8 <= logged_steps(folder) <= 9  # Ranks agree one boundary later.
    assert f"resume: step {logged_steps(folder)} from" in goes_on(bench, case, folder)


@pytest.mark.parametrize(
    ("case", "step"), [(ALONE, 8), (STREAM, 10), (PAIR, 12)], ids=lambda case: str(case)
)
def test_signal_in_validation(bench: Bench, case: Case, step: int) -> None:
    trap = Trap(point="validation", count=step, rank=case.ranks - 1, signal=signal.SIGTERM)
    folder, _ = stopped(bench, case, trap)
    log, _ = read_log(folder)
    assert logged_steps(folder) == step
    assert (step, "val") not in log  # What was seen of it is no mean.
    goes_on(bench, case, folder)
    assert (step, "val") in read_log(folder)[0]


@pytest.mark.parametrize("case", [STREAM, PAIR_BEHIND], ids=lambda case: str(case))
def test_signal_while_a_save_is_under_way(bench: Bench, case: Case) -> None:
    case = replace(case, every=12, pause=0.08)
    trap = Trap(point="behind", rank=case.ranks - 1, signal=signal.SIGTERM)
    folder, ended = stopped(bench, case, trap)
    # It ends in order, and what was trained meanwhile is saved as well.
    assert ended.output.index("checkpoint: step 12") > ended.output.index("SIGTERM: saving step")
    assert [c.manifest.step for c in published(folder)] == [logged_steps(folder), 12]
    goes_on(bench, case, folder)


@pytest.mark.parametrize("case", [ALONE, PAIR], ids=lambda case: str(case))
def test_torchrun_with_restarts_to_spare_is_told_that_all_is_well(
    bench: Bench, case: Case
) -> None:
    trap = Trap(point="step", count=5, signal=signal.SIGTERM)
    folder, _ = stopped(bench, case, trap, code=0)
    goes_on(bench, case, folder)


def test_time_limits_in_a_chain(bench: Bench) -> None:
    case = replace(STREAM, pause=0.05)
    folder = bench.folder()
    limit = ("--set", "checkpoint_parameters.time_limit_minutes=0.01")
    links = 0
    while (ended := Run(case, folder, *resumption(folder), *limit).wait()).codes == [STOPPED]:
        assert "time limit: saving step" in ended.output
        assert published(folder)[0].manifest.step == logged_steps(folder)
        links += 1
        assert links < 2 * case.steps
    assert ended.codes == [0], ended.output
    assert links > 0
    assert differences(folder, bench.reference(case)[0]) == []
    assert left_over(folder) == []


def test_time_limit_of_two_ranks(bench: Bench) -> None:
    case = bench.with_project(replace(PAIR, pause=0.05))
    folder = bench.folder()
    ended = Run(case, folder, "--set", "checkpoint_parameters.time_limit_minutes=0.01").wait()
    assert ended.codes == [STOPPED, STOPPED], ended.output
    assert published(folder)[0].manifest.step == logged_steps(folder)
    goes_on(bench, case, folder)


def test_torchrun_restarts_a_job_that_loses_a_rank(bench: Bench) -> None:
    assert restarted(bench, Case(mesh="fsdp", behind=True, name=None), kills=1) == []


def test_torchrun_does_not_restart_a_run_that_stopped(bench: Bench) -> None:
    case = Case(mesh="fsdp")
    folder = bench.folder()
    trap = Trap(point="step", count=7, rank=1, signal=signal.SIGTERM)
    done = torchrun(case, folder, restarts=2, traps=(trap,))
    assert done.returncode == 0, done.stderr
    assert events(folder).count("start") == 1
    assert published(folder)[0].manifest.step == logged_steps(folder) < case.steps
    goes_on(bench, case, folder)


def term_agent(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGTERM)


def term_all(process: "subprocess.Popen[str]") -> None:
    """As Slurm does: to every process of the job."""
    for pid in [*descendants(process.pid), process.pid]:
        os.kill(pid, signal.SIGTERM)


@pytest.mark.parametrize("strike", [term_agent, term_all])
def test_sigterm_to_torchrun_itself(bench: Bench, strike: object) -> None:
    case = Case(mesh="fsdp", pause=0.05)
    folder = bench.folder()
    code, output = interrupted(case, folder, 5, strike)  # type: ignore[arg-type]
    assert code != 0
    assert "SIGTERM: saving step" in output
    step = logged_steps(folder)
    assert 5 <= step < case.steps
    assert published(folder)[0].manifest.step == step, output
    assert left_over(folder) == []
    goes_on(bench, case, folder)


def test_nothing_is_left_running(bench: Bench) -> None:
    """The last test of this file."""
    own = [
        pid
        for pid in descendants(os.getpid())
        if str(bench.root) in (Path(f"/proc/{pid}/cwd").resolve().as_posix())
    ]
    assert own == [], f"{own} of {sys.argv}"
