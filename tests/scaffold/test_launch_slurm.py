"""launch/slurm.sbatch on a Slurm of its own: two nodes, both of them this machine.

Needs Debian's packages slurm-wlm and munge, and root: `apt-get install -y slurm-wlm munge`.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dream_scaffold.project.options import Options
from dream_scaffold.project.render import render_project
from tests.conftest import child_environment

MISSING = [name for name in ("munged", "slurmctld", "slurmd", "sbatch") if not shutil.which(name)]

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"no {', '.join(MISSING)}: install slurm-wlm, munge"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can start slurmd"),
    pytest.mark.timeout(900),  # Half a minute, unless other work takes the cores.
]

PATIENCE = 250
"""Seconds to wait for one thing to happen."""

STEPS = 60

CONFIG = """
ClusterName=here
SlurmctldHost=localhost
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
# How long a job that is requeued waits: 5 s are the least.
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=n[1-2] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{ports[1]}-{ports[2]}] \
CPUs=8 Gres=gpu:4
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@dataclass
class Cluster:
    """The daemons, and what asks them."""

    folder: Path
    environment: dict[str, str]
    daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, *command: str) -> None:
        log = self.folder / f"{command[0]}-{len(self.daemons)}.log"
        with log.open("wb") as file:
            daemon = subprocess.Popen(command, env=self.environment, stdout=file, stderr=file)
        self.daemons.append(daemon)

    def ask(self, *command: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            command, env=self.environment, cwd=cwd, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, f"{command}: {done.stderr}{self.logs()}"
        return done.stdout

    def job(self, number: int) -> dict[str, str]:
        told = self.ask("scontrol", "show", "job", str(number), "--oneliner")
        return dict(word.split("=", 1) for word in told.split() if "=" in word)

    def logs(self) -> str:
        """What the daemons said last."""
        said = (f"\n{log.name}:\n{log.read_text()[-2_000:]}" for log in self.folder.glob("*.log"))
        return "".join(said)

    def close(self) -> None:
        """End the jobs, the daemons and whatever has been started by them."""
        for daemon in reversed(self.daemons):
            daemon.kill()
            daemon.wait()
        mark = f"SLURM_CONF={self.environment['SLURM_CONF']}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    os.kill(int(process.name), signal.SIGKILL)


def until(happened: Callable[[], object], told: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, told()
        time.sleep(0.1)


def free_ports() -> list[int]:
    """One port, and two of which the second follows the first."""
    while True:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            first, second, third = (stack.enter_context(socket.socket()) for _ in range(3))
            first.bind(("127.0.0.1", 0))
            second.bind(("127.0.0.1", 0))
            following = second.getsockname()[1] + 1
            third.bind(("127.0.0.1", following))
            return [first.getsockname()[1], following - 1, following]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("slurm")
    (folder / "slurm.conf").write_text(CONFIG.format(folder=folder, ports=free_ports()))
    # Files in place of devices: nothing here computes on them.
    (folder / "gres.conf").write_text(f"NodeName=n[1-2] Name=gpu File={folder}/gpu[1-4]\n")
    for name in ("gpu1", "gpu2", "gpu3", "gpu4"):
        (folder / name).touch()
    for name in ("n1", "n2"):
        (folder / name).mkdir()
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o400)
    environment = child_environment() | {
        "SLURM_CONF": str(folder / "slurm.conf"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        # Without the paths of this checkout: the project has a runtime of its own.
        "PYTHONPATH": "",
    }
    started = Cluster(folder, environment)
    files = {"key": "key", "socket": "socket", "pid": "pid-file", "log": "log-file"}
    files = {f"munge.{end}": flag for end, flag in files.items()} | {"munge.seed": "seed-file"}
    try:
        started.start(
            "munged", "--foreground", "--force", *(f"--{f}={folder / n}" for n, f in files.items())
        )
        until((folder / "munge.socket").exists, started.logs)
        started.start("slurmctld", "-D", "-c")
        started.start("slurmd", "-D", "-N", "n1")
        started.start("slurmd", "-D", "-N", "n2")
        idle = ("sinfo", "--noheader", "--format=%D %t")
        until(lambda: _said(started, idle) == "2 idle", started.logs)
        yield started
    finally:
        started.close()


def _said(cluster: Cluster, command: tuple[str, ...]) -> str:
    """An answer, or nothing from a daemon that is not there yet."""
    done = subprocess.run(command, env=cluster.environment, capture_output=True, text=True)
    return done.stdout.strip()


@dataclass(frozen=True)
class Run:
    """A job of the project."""

    cluster: Cluster
    project: Path
    number: int

    @property
    def log(self) -> str:
        path = self.project / f"launch/my-project-{self.number}.log"
        return path.read_text() if path.exists() else ""

    @property
    def state(self) -> str:
        return self.cluster.job(self.number)["JobState"]

    def end(self) -> tuple[str, str, str]:
        """State, how often it was started again, and the codes of the script and of a signal."""
        job = self.cluster.job(self.number)
        return job["JobState"], job["Restarts"], job["ExitCode"]

    def told(self) -> str:
        return f"{self.cluster.job(self.number)}\n{self.log}{self.cluster.logs()}"

    def until_says(self, text: str) -> None:
        until(lambda: text in self.log, self.told)

    def until_is(self, *states: str) -> None:
        until(lambda: self.state in states, self.told)

    def steps(self) -> list[int]:
        """Those whose loss is in the run's log."""
        log = self.project / f"runs/slurm-{self.number}/log.jsonl"
        lines = map(json.loads, log.read_text().splitlines())
        return [line["step"] for line in lines if "train/loss" in line]


@pytest.fixture(scope="module")
def runs(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Jobs, all submitted and interrupted before the first test: most of their time is waiting."""
    project = tmp_path_factory.mktemp("project")
    options = Options(name="my-project", parallel="fsdp", recipe="blank", launch="slurm")
    render_project(options, project)
    script = project / "train.py"
    # The first attempt takes its time, so that it can be stopped before its end.
    slow = (
        'if "SLURM_RESTART_COUNT" not in os.environ:\n            time.sleep(1)\n        loss = '
    )
    text = script.read_text().replace("loss = ", slow, 1)
    text = text.replace("\nimport torch\n", "\nimport os\nimport time\n\nimport torch\n", 1)
    script.write_text(text)

    def submit(nodes: int, *arguments: str) -> Run:
        size = (f"--nodes={nodes}", "--ntasks-per-node=1", "--gpus-per-node=1")
        command = ("sbatch", "--parsable", *size, "--cpus-per-task=2", "launch/slurm.sbatch")
        number = cluster.ask(*command, *arguments, cwd=project)
        return Run(cluster, project, int(number))

    steps = ("--set", f"training_parameters.max_steps={STEPS}")
    often = ("--set", "logging_parameters.log_every_n_steps=1")
    submitted = {
        "out of time": submit(2, *steps, *often),
        "requeued": submit(1, "--config", "single", *steps, *often),
        "cancelled": submit(1, "--config", "single", *steps, *often),
        "wrong": submit(1, "--set", "no_such_field=1"),
    }
    numbers = {name: str(run.number) for name, run in submitted.items()}
    disturbances = {
        # Less than `--signal` asks for: Slurm looks twice a minute whose time is near.
        "out of time": ("update", f"JobId={numbers['out of time']}", "EndTime=now+2minutes"),
        "requeued": ("requeue", numbers["requeued"]),
    }
    for name, disturbance in disturbances.items():
        submitted[name].until_says("step  1/")
        cluster.ask("scontrol", *disturbance)
    submitted["cancelled"].until_says("step  1/")
    cluster.ask("scancel", numbers["cancelled"])
    return submitted


def goes_on(run: Run, signal_name: str) -> None:
    """The second attempt ends what the first one began, and repeats nothing."""
    run.until_is("COMPLETED", "FAILED")
    assert run.end() == ("COMPLETED", "1", "0:0"), run.told()
    stopped = re.search(rf"{signal_name}: saving step (\d+) and stopping", run.log)
    assert stopped and 0 < int(stopped[1]) < STEPS
    folder = f"runs/slurm-{run.number}/checkpoints"
    assert f"resume: step {stopped[1]} from {folder}/step-{int(stopped[1]):08}" in run.log
    assert run.steps() == list(range(1, STEPS + 1))
    assert (run.project / folder / f"step-{STEPS:08}/manifest.json").exists()


def test_a_run_ahead_of_its_time_limit_goes_on(runs: dict[str, Run]) -> None:
    run = runs["out of time"]
    run.until_says("SIGUSR1: saving step")
    run.cluster.ask("scontrol", "update", f"JobId={run.number}", "TimeLimit=1-00:00:00")
    assert "2 processes on cpu on 2 hosts" in run.log
    goes_on(run, "SIGUSR1")
    assert "n1: task 0: Exited with exit code 75" in run.log
    assert "n2: task 1: Exited with exit code 75" in run.log


def test_a_run_that_is_requeued_goes_on(runs: dict[str, Run]) -> None:
    run = runs["requeued"]
    goes_on(run, "SIGTERM")


def test_a_run_that_is_cancelled_saves_and_stays_so(runs: dict[str, Run]) -> None:
    run = runs["cancelled"]
    run.until_says("checkpoint: step")
    run.until_is("CANCELLED", "FAILED", "COMPLETED")
    assert run.end()[:2] == ("CANCELLED", "0"), run.told()


def test_an_error_ends_the_job(runs: dict[str, Run]) -> None:
    run = runs["wrong"]
    run.until_is("FAILED", "COMPLETED")
    assert run.end() == ("FAILED", "0", "1:0"), run.told()
    assert "no_such_field" in run.log
