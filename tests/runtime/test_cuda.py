"""What only a CUDA device can show. Skipped where there is none.

The processes take one device each; the modes that need two are skipped on one.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dream_scaffold.project.options import Options
from dream_scaffold.project.render import render_project

DEVICES = torch.cuda.device_count() if torch.cuda.is_available() else 0
pytestmark = pytest.mark.skipif(not DEVICES, reason="needs a CUDA device")
two_devices = pytest.mark.skipif(DEVICES < 2, reason="needs two CUDA devices")

SHORT = ("--no-log", "--set", "training_parameters.max_steps=20")


def train(project: Path, ranks: int, *options: str) -> str:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    done = subprocess.run(
        [sys.executable, *launcher, "train.py", *SHORT, *options],
        cwd=project,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    losses = [float(loss) for loss in re.findall(r"train/loss ([\d.]+)", done.stdout)]
    assert losses[-1] < losses[0] - 1
    return done.stdout


def render(folder: Path, parallel: str, *, compile: bool = False) -> Path:
    render_project(Options(name="lm", parallel=parallel, compile=compile), folder)
    return folder


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("compiled", [False, True])
def test_one_device(tmp_path: Path, dtype: str, compiled: bool) -> None:
    project = render(tmp_path, "single", compile=compiled)
    out = train(project, 1, "--set", f"device_parameters.param_dtype={dtype}")
    assert "1 process on cuda" in out


def test_sharded_and_offloaded_on_one_device(tmp_path: Path) -> None:
    project = render(tmp_path, "fsdp")
    assert "on cuda" in train(project, 1, "--force-fsdp")
    assert "on cuda" in train(project, 1, "--force-fsdp", "--cpu-offload")


@two_devices
@pytest.mark.parametrize("parallel", ["ddp", "fsdp", "tp", "pp"])
def test_two_devices(tmp_path: Path, parallel: str) -> None:
    assert "2 processes on cuda" in train(render(tmp_path, parallel), 2)


@two_devices
@pytest.mark.parametrize("rotate", ["allgather", "alltoall"])
def test_context_parallel_rotates_both_ways(tmp_path: Path, rotate: str) -> None:
    option = f"device_parameters.context_parallel_rotate_method={rotate}"
    assert "cp=2" in train(render(tmp_path, "cp"), 2, "--set", option)


@two_devices
def test_async_tensor_parallel_under_the_compiler(tmp_path: Path) -> None:
    option = "device_parameters.async_tensor_parallel=True"
    assert "tp=2" in train(render(tmp_path, "tp", compile=True), 2, "--set", option)
