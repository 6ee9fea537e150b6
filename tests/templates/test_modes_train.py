"""Modes train on as many processes as show them at work, and they agree on the loss."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from permutations import DATA

from dream_scaffold.project.modes import PARTS, read_mode

MODES = (*PARTS, "fsdp+tp")
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

Torchrun = Callable[..., CompletedProcess[str]]


def test_modes_agree(projects: dict[str, Path], torchrun: Torchrun, tmp_path: Path) -> None:
    """The lm recipe gives any number of ranks the same global batches."""
    losses: dict[str, list[float]] = {}
    for parallel in MODES:
        mode = read_mode(parallel)
        data_ranks = PARTS[mode.parts[0]].ranks if mode.parts[0] in DATA else 1
        project = projects[f"lm-{parallel}"]
        script = project / "short_run.py"
        script.write_text(SCRIPT)
        folder = tmp_path / parallel
        arguments = (f"{'_'.join(mode.parts)}_config", data_ranks, folder, STEPS)
        done = torchrun(
            mode.ranks, script, *arguments, cwd=project, env={"PYTHONPATH": str(project)}
        )
        script.unlink()
        assert done.returncode == 0, done.stdout + done.stderr
        rows = map(json.loads, (folder / "short/log.jsonl").read_text().splitlines())
        losses[parallel] = [row["train/loss"] for row in rows if "train/loss" in row]
        assert len(losses[parallel]) == STEPS
    for parallel in MODES:
        assert losses[parallel] == pytest.approx(losses["single"], abs=2e-5), parallel
