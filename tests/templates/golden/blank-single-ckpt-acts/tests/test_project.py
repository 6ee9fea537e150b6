"""Every config builds, and a few steps on one device bring the loss down."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import config
from dream_trainer.configs import DeviceParameters, LoggingParameters, TrainingParameters
from train import Trainer


@pytest.mark.parametrize("factory", [name for name in vars(config) if name.endswith("_config")])
def test_a_config_builds(factory: str) -> None:
    assert isinstance(getattr(config, factory)(), config.Config)


def test_a_short_run_learns(tmp_path: Path) -> None:
    short = replace(
        config.single_config(),
        experiment="short",
        device_parameters=DeviceParameters.SINGLE_DEVICE(
            param_dtype="float32", compile_model=False
        ),
        training_parameters=TrainingParameters(max_steps=20, val_steps_per_epoch=2),
        logging_parameters=LoggingParameters(root_dir=str(tmp_path), log_every_n_steps=1),
    )
    Trainer(short).fit()

    lines = (tmp_path / "short" / "log.jsonl").read_text().splitlines()
    losses = [row["train/loss"] for row in map(json.loads, lines) if "train/loss" in row]
    assert sum(losses[-5:]) < sum(losses[:5])
