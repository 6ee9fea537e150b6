"""Every mode of `lm`, on two and four ranks, is the single-process run again.

Same seed, same global batch, accumulation over two batches, clipping on, float32: ten
losses and gradient norms and the validation loss agree to 1e-5.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dream_scaffold.project.options import Options
from dream_scaffold.project.render import render_project

SCRIPT = Path(__file__).with_name("train_cases.py")
GLOBAL_BATCH = 16
VALUES = ("train/loss", "train/bits_per_byte", "train/grad_norm", "val/loss", "val/bits_per_byte")

MATRIX = [
    # mode, ranks, degrees
    ("ddp", 2, {"dp_replicate": 2}),
    ("ddp", 4, {"dp_replicate": 4}),
    ("fsdp", 2, {"dp_shard": 2}),
    ("fsdp", 4, {"dp_shard": 4}),
    ("hsdp", 2, {"dp_replicate": 1, "dp_shard": 2}),
    ("hsdp", 4, {"dp_replicate": 2, "dp_shard": 2}),
]


def run(mode: str, ranks: int, degrees: dict[str, int], folder: Path) -> list[dict[str, float]]:
    """Train the mode's generated project on so many processes; one dict a step."""
    project = folder / f"lm-{mode}"
    if not project.exists():
        project.mkdir()
        render_project(Options(name="lm", recipe="lm", parallel=mode), project)
    case = {
        "name": "case",
        "batch_size": GLOBAL_BATCH // ranks,
        "device": {"compile_model": False, **degrees},
    }
    cases, out = folder / "cases.json", folder / f"{mode}-{ranks}.json"
    cases.write_text(json.dumps([case]))
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    subprocess.run(
        [sys.executable, *(launcher if ranks > 1 else []), SCRIPT, cases, out],
        cwd=project,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=True,
        timeout=180,
    )
    steps: list[dict[str, float]] = json.loads(out.read_text())["case"]
    return steps


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("equality")


@pytest.fixture(scope="module")
def single(folder: Path) -> list[dict[str, float]]:
    return run("single", 1, {}, folder)


def test_the_single_run_learns_something(single: list[dict[str, float]]) -> None:
    losses = [step["train/loss"] for step in single]
    assert len(losses) == 10
    assert losses[-1] < losses[0] - 0.2
    assert "val/loss" in single[-1]


@pytest.mark.parametrize(("mode", "ranks", "degrees"), MATRIX)
def test_equal_to_one_device(
    mode: str,
    ranks: int,
    degrees: dict[str, int],
    folder: Path,
    single: list[dict[str, float]],
) -> None:
    steps = run(mode, ranks, degrees, folder)
    assert len(steps) == len(single)
    for step, (ours, reference) in enumerate(zip(steps, single, strict=True), start=1):
        for name in VALUES:
            if name in reference:
                assert ours[name] == pytest.approx(reference[name], abs=1e-5), (step, name)
