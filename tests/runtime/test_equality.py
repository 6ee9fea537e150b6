"""Every mesh axis of `lm`, alone and together, is the single-process run again.

Same seed, same global batch, accumulation over two batches, clipping on, float32: the
initial weights are identical, ten losses and gradient norms and the validation loss agree
to 1e-5. Rows of one project and one number of ranks share a launch.
"""

import json
import sys
from collections.abc import Callable
from functools import cache
from math import prod
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any, NamedTuple

import pytest

from dream_scaffold.project.options import Options
from dream_scaffold.project.render import render_project
from tests.conftest import run_bounded

SCRIPT = Path(__file__).with_name("train_cases.py")
GLOBAL_BATCH = 16
TEXT_BYTES = 20_500  # Of them 1,025 are held out: two full batches of 16 x 32 bytes.
VALUES = ("train/loss", "train/bits_per_byte", "train/grad_norm", "val/loss", "val/bits_per_byte")

ALL_HOOKS = "fsdp+cp+tp+pp"
"""Its hooks serve any mesh but one that replicates without sharding."""

SCHEDULES = (
    "GPipe",
    "Interleaved1F1B",
    "ZBVZeroBubble",
    "DualPipeV",
)


CONFIG_OPTIONS = {"selective_checkpointing"}
"""Options of a row that are fields of the project's own `Config`."""


class Row(NamedTuple):
    """One mesh, run on the project that `--parallel project` makes."""

    project: str
    degrees: dict[str, int]
    options: dict[str, Any]

    @property
    def ranks(self) -> int:
        return prod(self.degrees.values())

    @property
    def data_ranks(self) -> int:
        return self.degrees.get("dp_replicate", 1) * self.degrees.get("dp_shard", 1)

    @property
    def device_options(self) -> dict[str, Any]:
        return {name: v for name, v in self.options.items() if name not in CONFIG_OPTIONS}

    @property
    def name(self) -> str:
        axes = [f"{axis}={degree}" for axis, degree in self.degrees.items()]
        return "-".join([*axes, *(f"{option}={value}" for option, value in self.options.items())])


def row(project: str, degrees: dict[str, int], **options: Any) -> Row:
    return Row(project, degrees, options)


MATRIX = [
    # Each axis alone.
    row("ddp+pp", {"dp_replicate": 2}),
    row(ALL_HOOKS, {"dp_shard": 2}),
    row(ALL_HOOKS, {"context_parallel": 2}),
    row(ALL_HOOKS, {"tensor_parallel": 2}),
    row(ALL_HOOKS, {"pipeline_parallel": 2}),
    *(row(ALL_HOOKS, {"pipeline_parallel": 2}, pipeline_schedule=name) for name in SCHEDULES),
    # Every pair; tp beside replicas that do not shard is refused.
    row(ALL_HOOKS, {"dp_replicate": 2, "dp_shard": 2}),
    row(ALL_HOOKS, {"dp_replicate": 2, "context_parallel": 2}),
    row("ddp+pp", {"dp_replicate": 2, "pipeline_parallel": 2}),
    row(ALL_HOOKS, {"dp_shard": 2, "context_parallel": 2}),
    row(ALL_HOOKS, {"dp_shard": 2, "tensor_parallel": 2}),
    row(ALL_HOOKS, {"dp_shard": 2, "pipeline_parallel": 2}),
    row(ALL_HOOKS, {"context_parallel": 2, "tensor_parallel": 2}),
    row(ALL_HOOKS, {"context_parallel": 2, "pipeline_parallel": 2}),
    row(ALL_HOOKS, {"tensor_parallel": 2, "pipeline_parallel": 2}),
    # The loss by classes: no rank holds all logits.
    row(ALL_HOOKS, {"tensor_parallel": 2}, loss_parallel=True),
    row(ALL_HOOKS, {"tensor_parallel": 2, "pipeline_parallel": 2}, loss_parallel=True),
    # Parameters and optimizer state in host memory, which on a CPU they are anyway.
    row(ALL_HOOKS, {"dp_shard": 2}, cpu_offload=True),
    # Activations computed again, all or but the costly ones.
    row(ALL_HOOKS, {"dp_shard": 2}, checkpoint_activations=True),
    row(ALL_HOOKS, {"tensor_parallel": 2}, checkpoint_activations=True),
    row(ALL_HOOKS, {"pipeline_parallel": 2}, checkpoint_activations=True),
    row(ALL_HOOKS, {"dp_shard": 2}, checkpoint_activations=True, selective_checkpointing=True),
    # More than two ranks on an axis, and three axes.
    row("ddp+pp", {"dp_replicate": 4}),
    row(ALL_HOOKS, {"dp_shard": 4}),
    row(ALL_HOOKS, {"context_parallel": 4}),
    row(ALL_HOOKS, {"dp_shard": 2, "tensor_parallel": 2, "pipeline_parallel": 2}),
]
ONE_DEVICE = row("single", {})

Results = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Row], dict[str, Any]]:
    """What a row recorded; the first of a launch brings the others along."""
    folder = tmp_path_factory.mktemp("equality")
    text = "".join(topics[name] for name in sorted(topics)).encode()[:TEXT_BYTES]
    (folder / "text.txt").write_bytes(text)

    @cache
    def results(project: str, ranks: int) -> Results:
        rows = [r for r in (ONE_DEVICE, *MATRIX) if (r.project, r.ranks) == (project, ranks)]
        return train(rows, ranks, made(project), folder)

    @cache
    def made(parallel: str) -> Path:
        project = folder / f"lm-{parallel}"
        project.mkdir()
        checkpoints = parallel == ALL_HOOKS
        render_project(Options(name="lm", parallel=parallel, ckpt_acts=checkpoints), project)
        return project

    return lambda row: results(row.project, row.ranks)[row.name]


def train(rows: list[Row], ranks: int, project: Path, folder: Path) -> Results:
    """Train the project once a row, on so many processes."""
    cases = [
        {
            "name": row.name,
            "batch_size": GLOBAL_BATCH // row.data_ranks,
            "text_file": str(folder / "text.txt"),
            "weights_file": str(folder / "weights.pt"),
            "device": {"compile_model": False, **row.degrees, **row.device_options},
            "config": {name: row.options[name] for name in CONFIG_OPTIONS & row.options.keys()},
        }
        for row in rows
    ]
    written, out = folder / "cases.json", folder / f"{project.name}-{ranks}.json"
    written.write_text(json.dumps(cases))
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command = [sys.executable, *(torchrun if ranks > 1 else []), str(SCRIPT)]
    done = run_bounded([*command, str(written), str(out)], cwd=project, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    # Of a view an in-place operation would take the hooks of `fully_shard` away.
    assert "returned a view tensor" not in done.stderr
    results: Results = json.loads(out.read_text())
    return results


@pytest.fixture(scope="module")
def single(launch: Callable[[Row], dict[str, Any]]) -> list[dict[str, float]]:
    steps: list[dict[str, float]] = launch(ONE_DEVICE)["steps"]
    return steps


def test_the_single_run_learns_something(single: list[dict[str, float]]) -> None:
    losses = [step["train/loss"] for step in single]
    assert len(losses) == 10
    assert losses[-1] < losses[0] - 0.2
    assert "val/loss" in single[-1]


@pytest.mark.parametrize("row", MATRIX, ids=lambda row: row.name)
def test_equal_to_one_device(
    row: Row, launch: Callable[[Row], dict[str, Any]], single: list[dict[str, float]]
) -> None:
    steps = launch(row)["steps"]
    assert len(steps) == len(single)
    for step, (ours, reference) in enumerate(zip(steps, single, strict=True), start=1):
        for name in VALUES:
            if name in reference:
                assert ours[name] == pytest.approx(reference[name], abs=1e-5), (step, name)


@pytest.mark.parametrize("row", MATRIX, ids=lambda row: row.name)
def test_dropout_is_alike_along_tp_alone(
    row: Row, launch: Callable[[Row], dict[str, Any]], single: list[dict[str, float]]
) -> None:
    kept: dict[tuple[int, ...], set[tuple[bool, ...]]] = {}
    for coordinate, mask in launch(row)["dropout"]:
        place = tuple(place for axis, place in coordinate.items() if axis != "tp")
        kept.setdefault(place, set()).add(tuple(mask))
    assert all(len(masks) == 1 for masks in kept.values())
    assert len(set.union(*kept.values())) == len(kept)
