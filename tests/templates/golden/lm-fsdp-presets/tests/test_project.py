"""Every config builds, a short run learns, and a resumed one goes on as if never stopped."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import config
from dream_trainer.configs import (
    CheckpointParameters,
    DeviceParameters,
    LoggingParameters,
    TrainingParameters,
)
from train import Trainer


def short_config(folder: Path, resume: str | None = None) -> config.Config:
    """20 steps on one device, saved after every 8."""
    return replace(
        config.single_config(),
        experiment="short",
        device_parameters=DeviceParameters.SINGLE_DEVICE(
            param_dtype="float32", compile_model=False
        ),
        training_parameters=TrainingParameters(max_steps=20, val_steps_per_epoch=2),
        logging_parameters=LoggingParameters(root_dir=str(folder), log_every_n_steps=1),
        checkpoint_parameters=CheckpointParameters(
            root_dir=str(folder), checkpoint_every_n_steps=8, resume=resume
        ),
    )


def losses(folder: Path) -> list[float]:
    lines = (folder / "short" / "log.jsonl").read_text().splitlines()
    return [row["train/loss"] for row in map(json.loads, lines) if "train/loss" in row]


@pytest.mark.parametrize("factory", [name for name in vars(config) if name.endswith("_config")])
def test_a_config_builds(factory: str) -> None:
    assert isinstance(getattr(config, factory)(), config.Config)


def test_a_short_run_learns_and_can_be_resumed(tmp_path: Path) -> None:
    Trainer(short_config(tmp_path)).fit()
    whole = losses(tmp_path)
    assert sum(whole[-5:]) < sum(whole[:5])

    for step in (16, 20):  # As if the run had been killed after step 8.
        shutil.rmtree(tmp_path / "short" / "checkpoints" / f"step-{step:08}")
    Trainer(short_config(tmp_path, resume="short")).fit()
    assert losses(tmp_path) == whole + whole[8:]
