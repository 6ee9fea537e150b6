"""What `dream doctor` says of machines that are well and of machines that are not."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dream_scaffold.doctor import accelerators, machine, network, packages, project, smoke, storage
from dream_scaffold.doctor.examine import examine
from dream_scaffold.doctor.reading import Reading, size, take
from dream_scaffold.project.new import create
from dream_scaffold.project.options import Options

GPU = {
    "name": "H100",
    "capability": "9.0",
    "free": 79 << 30,
    "total": 80 << 30,
    "peers": [1],
}
TORCH: dict[str, Any] = {
    "version": "2.13.0+cu130",
    "cuda_build": "13.0",
    "hip_build": None,
    "gloo": True,
    "nccl": True,
    "nccl_version": "2.28.3",
    "mps": False,
    "threads": 8,
    "devices": [GPU, {**GPU, "peers": [0]}],
}
NO_GPU = TORCH | {"devices": [], "nccl_version": None}


def by_name(readings: list[Reading]) -> dict[str, Reading]:
    return {reading.name: reading for reading in readings}


def devices(asked: Any, environment: dict[str, str] | None = None) -> dict[str, Reading]:
    return by_name(list(accelerators.probe(asked, environment or {})))


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put an `nvidia-smi` on the path that says what it is told."""

    def install(said: str) -> None:
        script = tmp_path / "nvidia-smi"
        script.write_text(f"#!/bin/sh\necho '{said}'\n")
        script.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    return install


def test_two_gpus_side_by_side(smi: Callable[[str], None]) -> None:
    smi("GPU0 X NV18 GPU1 NV18 X")
    found = devices(TORCH)
    assert all(reading.state == "ok" for reading in found.values())
    assert found["cuda:1"].text == "H100, 79.0 GiB free of 80.0 GiB, capability 9.0"
    assert found["links"].text == "NVLink (NV18)" and found["NCCL"].text == "2.28.3"


def test_gpus_that_are_in_use_or_apart(smi: Callable[[str], None]) -> None:
    smi("GPU0 X PHB GPU1 PHB X")
    busy = GPU | {"free": 10 << 30, "peers": []}
    found = devices(TORCH | {"devices": [busy, busy]})
    assert found["cuda:0"].state == "note" and "nvidia-smi" in found["cuda:0"].remedy
    assert "GPUs 0, 1 cannot read" in found["peer access"].text
    assert found["links"].text == "PCIe, no NVLink"


@pytest.mark.parametrize(
    ("asked", "environment", "state", "text"),
    [
        (NO_GPU, {}, "bad", "torch sees no GPU"),
        (NO_GPU | {"cuda_build": None}, {}, "bad", "built for the CPU only"),
        (NO_GPU, {"CUDA_VISIBLE_DEVICES": ""}, "note", "hides every GPU"),
        (NO_GPU | {"mps": True}, {}, "ok", "Apple"),
    ],
)
def test_a_driver_and_no_gpu(
    smi: Callable[[str], None], asked: Any, environment: dict[str, str], state: str, text: str
) -> None:
    smi("")
    found = devices(asked, environment)
    reading = found["mps"] if "mps" in found else found["accelerator"]
    assert reading.state == state and text in reading.text


def test_torch_that_is_missing_old_or_without_collectives() -> None:
    assert devices("ModuleNotFoundError: No module named 'torch'")["torch"].remedy == (
        "pip install torch"
    )
    assert devices("ImportError: libcudart")["torch"].text == "ImportError: libcudart"
    assert devices(TORCH | {"version": "2.6.1"})["torch"].state == "bad"
    found = devices(TORCH | {"nccl": False, "gloo": False, "nccl_version": None})
    assert found["NCCL"].state == found["gloo"].state == "bad"


def test_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, state in (("2", "ok"), ("0", "bad"), ("many", "bad")):
        found = by_name(list(machine.probe({"OMP_NUM_THREADS": value})))
        assert found["OMP_NUM_THREADS"].state == state
    assert by_name(list(machine.probe({})))["OMP_NUM_THREADS"].state == "note"
    monkeypatch.setattr(machine, "LEAST_SHM", 1 << 62)
    monkeypatch.setattr(machine, "LEAST_FILES", 1 << 40)
    found = by_name(list(machine.probe({})))
    assert found["/dev/shm"].state == "bad" and found["open files"].state == "note"


def test_network(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setattr(network, "USUAL_PORT", taken.getsockname()[1])
        found = by_name(list(network.probe({})))
    assert found[f"port {network.USUAL_PORT}"].state == "note"
    found = by_name(list(network.probe({"GLOO_SOCKET_IFNAME": "no0", "NCCL_DEBUG": "INFO"})))
    assert found["GLOO_SOCKET_IFNAME"].state == "bad" and found["NCCL_DEBUG"].state == "ok"
    found = by_name(list(network.probe({"NCCL_SOCKET_IFNAME": "^docker,lo"})))
    assert found["NCCL_SOCKET_IFNAME"].state == "ok"

    def nowhere(name: str) -> str:
        raise OSError("unknown")

    monkeypatch.setattr(socket, "gethostbyname", nowhere)
    assert by_name(list(network.probe({})))["host name"].state == "bad"


def test_what_a_launcher_left_behind() -> None:
    found = by_name(list(network.probe({"RANK": "0", "WORLD_SIZE": "8"})))
    assert found["launcher"].state == "bad" and "unset RANK WORLD_SIZE" in found["launcher"].remedy
    whole = dict.fromkeys(network.OF_TORCHRUN, "0")
    assert by_name(list(network.probe(whole)))["launcher"].state == "ok"
    assert by_name(list(network.probe({"SLURM_NTASKS": "8"})))["Slurm"].state == "note"


def test_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = by_name(list(storage.probe(tmp_path / "not" / "yet")))
    assert found[str(tmp_path / "not" / "yet")].state == "ok" and os.listdir(tmp_path) == []
    monkeypatch.setattr(storage, "LEAST_FREE", 1 << 62)
    assert by_name(list(storage.probe(tmp_path)))["room"].state == "bad"
    mounts = tmp_path / "mounts"
    mounts.write_text(f"none / ext4 rw\nserver:/x {tmp_path} nfs4 rw\n")
    monkeypatch.setattr(storage, "MOUNTS", mounts)
    assert by_name(list(storage.probe(tmp_path)))["file system"].text.startswith("nfs4")

    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage.os, "replace", full)
    assert "No space left" in by_name(list(storage.probe(tmp_path)))[str(tmp_path)].text


def test_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "OPTIONAL", {"numpy-not-there": "x", "pytest": "tests"})
    monkeypatch.setattr(packages, "NEEDED", ("numpy-not-there",))
    found = by_name(list(packages.probe()))
    assert found["numpy-not-there"].state == "bad" and found["pytest"].state == "ok"


def test_the_project(tmp_path: Path) -> None:
    assert by_name(list(project.probe(tmp_path)))["project"].state == "note"
    made = tmp_path / "mine"
    create(made, Options(name="mine", parallel="ddp"), git=False)
    found = by_name(list(project.probe(made / "tests")))
    assert {reading.state for reading in found.values()} == {"ok"}
    pyproject = made / "pyproject.toml"
    needs = pyproject.read_text()
    pyproject.write_text(needs.replace('"rich>=13"', '"rich>=13", "not-there>=3"'))
    reading = by_name(list(project.probe(made)))["requirements"]
    assert reading.state == "bad" and reading.text == "not installed: not-there"
    pyproject.write_text(needs)
    train = made / "train.py"
    text = train.read_text()
    train.write_text(text.replace("def apply_replicate", "def copies"))
    loop = made / "dream_trainer" / "loop.py"
    loop.write_text(loop.read_text() + "# Mine.\n")
    (made / ".dream" / "base" / "data.py").unlink()
    (made / ".dream" / "update.json").write_text("[]")
    found = by_name(list(project.probe(made)))
    assert found["dream check"].text == "1 error"
    assert "dream_trainer/loop.py" in found["runtime edits"].text
    assert found["snapshot"].state == "note" and found["update"].state == "bad"
    train.write_text(f"<<<<<<< yours\n=======\n>>>>>>> template\n{text}")
    assert by_name(list(project.probe(made)))["conflicts"].text == "open in train.py"
    (made / ".dream" / "answers.yml").write_text("")
    assert by_name(list(project.probe(made)))[".dream/answers.yml"].state == "bad"


def test_a_probe_that_fails_spoils_no_other() -> None:
    def broken() -> Any:
        yield Reading("x", "one", "ok", "")
        raise ValueError("odd")

    assert take("x", broken) == [
        Reading("x", "x", "note", "could not be looked at: ValueError: odd")
    ]


def test_sizes() -> None:
    assert [size(n) for n in (1, 2048, 3 << 20, 5 << 40)] == [
        "1 B",
        "2.0 KiB",
        "3.0 MiB",
        "5.0 TiB",
    ]


def test_collectives_that_do_not_come_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = tmp_path / "worker.py"
    monkeypatch.setattr(smoke, "WORKER", worker)
    monkeypatch.setattr(smoke, "PATIENCE", 5)
    for text, told in (
        ("raise OSError('no route')", "OSError: no route"),
        ("import time; time.sleep(60)", "did not meet within 5 seconds"),
        ("print('False 1.0')", "an all-reduce gave a wrong sum"),
    ):
        worker.write_text(text)
        (reading,) = smoke.probe(NO_GPU)
        assert reading.state == "bad" and told in reading.text


def test_this_machine(tmp_path: Path) -> None:
    readings = examine(tmp_path)
    assert by_name(readings)["torch"].state == "ok"
    assert "all-reduce of 4 MiB" in by_name(readings)["gloo, 2 processes"].text
    assert {reading.topic for reading in readings} == {
        "machine", "devices", "collectives", "network", "storage", "packages", "project",
    }  # fmt: skip


def test_the_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dream_scaffold", "doctor", "--no-smoke"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    bad = done.stdout.count("  BAD   ")
    assert done.returncode == int(bad > 0), done.stderr
    assert done.stdout.splitlines()[-1] == (
        f"{bad} in the way." if bad else "Nothing is in the way."
    )
    told = json.loads(
        subprocess.run([*command, "--json"], cwd=tmp_path, capture_output=True).stdout
    )
    assert told["version"] == 1 and told["bad"] == bad
    assert set(told["readings"][0]) == {"topic", "name", "state", "text", "remedy"}
