"""Modes train on as many processes as show them at work, and they agree on the loss."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from permutations import DATA

from dream_scaffold.project.modes import PARTS, read_mode
from tests.conftest import run_torchrun

MODES = {
    "lm": ("fsdp+tp",),
    "vision": ("ddp", "fsdp+tp"),
    "gan": ("ddp", "fsdp"),
    "finetune": ("hsdp",),
    "blank": ("ddp", "fsdp"),
}
"""Recipe -> modes that have each of its axes; those of `lm` are `test_equality`'s."""

STEPS = 3
SCRIPT = """
import sys
import config
from dataclasses import replace
from dream_trainer.configs import LoggingParameters, TrainingParameters
from dream_trainer.utils.entrypoint import entrypoint
import torch
import train


class Trainer(train.Trainer):
    def draw(self, count):
        # The same noise on every rank: else more ranks would draw other images.
        noise = torch.linspace(-1, 1, self.config.noise_dim).expand(count, -1)
        return self.generator(noise).float()


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


def losses(
    projects: dict[str, Path], recipe: str, parallel: str, folder: Path
) -> list[dict[str, float]]:
    """What the mode's own project, launched as its factory says, logs of a few steps."""
    mode = read_mode(parallel)
    data_ranks = PARTS[mode.parts[0]].ranks if mode.parts[0] in DATA else 1
    project = projects[f"{recipe}-{parallel}"]
    script = project / "short_run.py"
    script.write_text(SCRIPT)
    arguments = (f"{'_'.join(mode.parts)}_config", data_ranks, folder, STEPS)
    environment = {"PYTHONPATH": str(project)}
    done = run_torchrun(mode.ranks, script, *arguments, cwd=project, env=environment)
    script.unlink()
    assert done.returncode == 0, done.stdout + done.stderr
    rows = map(json.loads, (folder / "short/log.jsonl").read_text().splitlines())
    return [
        {name: value for name, value in row.items() if name.endswith("loss")}
        for row in rows
        if "train/loss" in row
    ]


@pytest.fixture(scope="module")
def single(
    projects: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], list[dict[str, float]]]:
    @cache
    def run(recipe: str) -> list[dict[str, float]]:
        return losses(projects, recipe, "single", tmp_path_factory.mktemp(recipe))

    return run


@pytest.mark.parametrize(
    ("recipe", "parallel"), [(recipe, mode) for recipe, modes in MODES.items() for mode in modes]
)
def test_a_mode_agrees_with_one_device(
    projects: dict[str, Path],
    single: Callable[[str], list[dict[str, float]]],
    recipe: str,
    parallel: str,
    tmp_path: Path,
) -> None:
    """Any number of ranks is given the same global batches."""
    expected = single(recipe)
    assert len(expected) == STEPS
    found = losses(projects, recipe, parallel, tmp_path)
    assert len(found) == STEPS
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, abs=2e-5)
