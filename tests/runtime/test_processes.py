"""How a process reads its launcher's word, and what it says when others do not come."""

import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from dream_trainer.configs import Comm, RunError
from dream_trainer.processes import Process, doubts, start_process_group

ROOT = Path(__file__).parents[2]


class TestProcess:
    def read(self, monkeypatch: pytest.MonkeyPatch, **variables: str) -> Process:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return Process.from_environment()

    def test_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.read(monkeypatch) == Process(0, 1, 0, 1, launcher="")

    @pytest.mark.parametrize(
        "variables",
        [
            {"LOCAL_RANK": "1"},
            {"WORLD_SIZE": "4"},
            {"RANK": "1"},
            {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4"},
        ],
    )
    def test_half_an_environment_is_none(
        self, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert self.read(monkeypatch, **variables) == Process()

    def test_torchrun(self, monkeypatch: pytest.MonkeyPatch) -> None:
        process = self.read(
            monkeypatch, RANK="9", WORLD_SIZE="16", LOCAL_RANK="1", LOCAL_WORLD_SIZE="8"
        )
        assert process == Process(9, 16, 1, 8, "torchrun")

    def test_without_local_variables(self, monkeypatch: pytest.MonkeyPatch) -> None:
        process = self.read(monkeypatch, RANK="3", WORLD_SIZE="4")
        assert process == Process(3, 4, 0, 4, "torchrun")

    def test_slurm(self, monkeypatch: pytest.MonkeyPatch) -> None:
        slurm = {
            "SLURM_STEP_ID": "0",
            "SLURM_PROCID": "5",
            "SLURM_NTASKS": "8",
            "SLURM_NNODES": "2",
            "SLURM_LOCALID": "1",
        }
        assert self.read(monkeypatch, **slurm) == Process(5, 8, 1, 4, "Slurm")

    def test_torchrun_inside_slurm(self, monkeypatch: pytest.MonkeyPatch) -> None:
        process = self.read(
            monkeypatch,
            SLURM_STEP_ID="0",
            SLURM_PROCID="0",
            SLURM_NTASKS="2",
            SLURM_LOCALID="0",
            RANK="7",
            WORLD_SIZE="8",
            LOCAL_RANK="3",
            LOCAL_WORLD_SIZE="4",
        )
        assert process == Process(7, 8, 3, 4, "torchrun")

    @pytest.mark.parametrize(
        ("variables", "told"),
        [
            ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK='x'"),
            (
                {"RANK": "2", "WORLD_SIZE": "2"},
                "RANK='2' in the environment is not a rank below",
            ),
            ({"RANK": "0", "WORLD_SIZE": ""}, "WORLD_SIZE=''"),
            ({"SLURM_STEP_ID": "0", "SLURM_PROCID": "3", "SLURM_NTASKS": "2"}, "SLURM_PROCID='3'"),
        ],
    )
    def test_contradictions(
        self, variables: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(RunError) as caught:
            self.read(monkeypatch, **variables)
        assert told in str(caught.value) and "Unset the variables" in str(caught.value)


class TestDoubts:
    """Failure mode 53: the launcher's variables disagree."""

    @pytest.mark.parametrize(
        ("variables", "told"),
        [
            ({}, []),
            ({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "8"}, ["SLURM_NTASKS=8, but this is one"]),
            ({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "1"}, []),
            (
                {
                    "SLURM_STEP_ID": "0",
                    "SLURM_PROCID": "0",
                    "SLURM_NTASKS": "1",
                    "SLURM_NTASKS_PER_NODE": "2",
                },
                ["SLURM_NTASKS=1 but SLURM_NTASKS_PER_NODE=2: the job has 1 process."],
            ),
            ({"SLURM_NTASKS": "4", "RANK": "0", "WORLD_SIZE": "8"}, []),
        ],
    )
    def test_slurm(
        self, variables: dict[str, str], told: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        found = doubts(Process.from_environment())
        assert len(found) == len(told)
        assert all(line.startswith(start) for line, start in zip(found, told, strict=True))


class TestMeeting:
    """What the first line of a run that cannot start says."""

    def refusal(self, process: Process) -> str:
        with pytest.raises(RunError) as caught:
            start_process_group(process, torch.device("cpu"), Comm(init_timeout_seconds=1))
        return str(caught.value)

    def test_a_port_that_is_taken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with socket.socket() as taken:
            taken.bind(("", 0))
            taken.listen()
            port = taken.getsockname()[1]
            monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
            monkeypatch.setenv("MASTER_PORT", str(port))
            told = self.refusal(Process(0, 2, 0, 2, "torchrun"))
        assert told.startswith(f"Port {port} of this machine is taken")

    @pytest.mark.parametrize(
        ("launcher", "told"),
        [("Slurm", "(SLURM_NTASKS=4). Launch with srun"), ("torchrun", "(WORLD_SIZE=4). Launch")],
    )
    def test_processes_that_do_not_come(
        self, launcher: str, told: str, free_port: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(free_port))
        text = self.refusal(Process(0, 4, 0, 4, launcher))
        assert text.startswith(f"1 of 4 processes came to 127.0.0.1:{free_port} within 1 s ")
        assert told in text

    def test_a_first_rank_that_is_not_there(
        self, free_port: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(free_port))
        text = self.refusal(Process(1, 2, 1, 2, "torchrun"))
        assert text.startswith(f"Rank 0 could not be reached at 127.0.0.1:{free_port} within 1 s.")

    def test_no_address(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("MASTER_ADDR", raising=False)
        assert "MASTER_ADDR is not set" in self.refusal(Process(0, 2, 0, 2, "torchrun"))


@pytest.fixture
def free_port() -> int:
    with socket.socket() as free:
        free.bind(("", 0))
        return int(free.getsockname()[1])


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def nodes() -> Iterator[tuple[str, str]]:
    """Two network namespaces joined by a cable: 10.77.0.1 and 10.77.0.2."""
    tag = uuid.uuid4().hex[:6]
    names = (f"a{tag}", f"b{tag}")
    try:
        try:
            for name in names:
                ip("netns", "add", name)
            ip("link", "add", f"v{names[0]}", "type", "veth", "peer", "name", f"v{names[1]}")
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("this machine lets nobody make network namespaces")
        for number, name in enumerate(names, 1):
            ip("link", "set", f"v{name}", "netns", name)
            ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", f"v{name}")
            ip("-n", name, "link", "set", f"v{name}", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def test_two_nodes(nodes: tuple[str, str], tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TWO_NODES)
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'runtime'}:{ROOT}", "OMP_NUM_THREADS": "1"}
    launched = [
        subprocess.Popen(
            [
                *("ip", "netns", "exec", name, "env", f"GLOO_SOCKET_IFNAME=v{name}"),
                *(sys.executable, "-m", "torch.distributed.run", "--nnodes=2"),
                *(f"--node-rank={rank}", "--nproc-per-node=1", "--master-addr=10.77.0.1"),
                *("--master-port=29511", str(script)),
            ],
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank, name in enumerate(nodes)
    ]
    try:
        outputs = [process.communicate(timeout=120)[0] for process in launched]
    finally:
        for process in launched:
            process.kill()
    assert [process.returncode for process in launched] == [0, 0], outputs
    (line,) = [line for line in outputs[0].splitlines() if line.startswith("run ")]
    assert "2 processes on cpu on 2 hosts (" in line and "mesh dp_shard=2" in line
    assert "step 3/3" in outputs[0] and "step " not in outputs[1]


TWO_NODES = """
from dream_trainer.configs import DeviceParameters, TrainingParameters
from dream_trainer.utils.cli import cli
from tests.runtime.tiny import TinyTrainer, batches
from dream_trainer import DreamTrainerConfig

def main(config):
    TinyTrainer(config, train=batches(3)).fit()

if __name__ == "__main__":
    cli(main, DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(param_dtype="float32", compile_model=False),
        training_parameters=TrainingParameters(n_epochs=1),
    ))
"""
