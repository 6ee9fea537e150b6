"""Modes train on as many processes as show them at work, and they agree on the loss."""

import json
from pathlib import Path

import pytest
from permutations import DATA

from dream_scaffold.project.modes import PARTS, read_mode
from tests.conftest import run_torchrun

MODES = (*(part for part in PARTS if part != "single"), "fsdp+tp")
STEPS = 3
SCRIPT = """
import sys
import config
from dataclasses import replace
from dream_trainer.configs import LoggingParameters, TrainingParameters
from dream_trainer.utils.entrypoint import entrypoint
from train import Trainer

factory, data_ranks, folder, steps = sys.argv[1:]


@entrypoint
def main(short):
    Trainer(short).fit()


if __name__ == "__main__":
    full = getattr(config, factory)()
    full.device_parameters.param_dtype = "float32"
    main(
        replace(
            full,
            experiment="short",
            batch_size=8 // int(data_ranks),
            training_parameters=TrainingParameters(max_steps=int(steps), val_steps_per_epoch=2),
            logging_parameters=LoggingParameters(root_dir=folder, log_every_n_steps=1),
        )
    )
"""


def losses(projects: dict[str, Path], parallel: str, folder: Path) -> list[float]:
    """What the mode's own project, launched as its factory says, logs of a few steps."""
    mode = read_mode(parallel)
    data_ranks = PARTS[mode.parts[0]].ranks if mode.parts[0] in DATA else 1
    project = projects[f"lm-{parallel}"]
    script = project / "short_run.py"
    script.write_text(SCRIPT)
    arguments = (f"{'_'.join(mode.parts)}_config", data_ranks, folder, STEPS)
    environment = {"PYTHONPATH": str(project)}
    done = run_torchrun(mode.ranks, script, *arguments, cwd=project, env=environment)
    script.unlink()
    assert done.returncode == 0, done.stdout + done.stderr
    rows = map(json.loads, (folder / "short/log.jsonl").read_text().splitlines())
    return [row["train/loss"] for row in rows if "train/loss" in row]


@pytest.fixture(scope="module")
def single(projects: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    return losses(projects, "single", tmp_path_factory.mktemp("single"))


@pytest.mark.parametrize("parallel", MODES)
def test_a_mode_agrees_with_one_device(
    projects: dict[str, Path], single: list[float], parallel: str, tmp_path: Path
) -> None:
    """The lm recipe gives any number of ranks the same global batches."""
    assert len(single) == STEPS
    assert losses(projects, parallel, tmp_path) == pytest.approx(single, abs=2e-5)
