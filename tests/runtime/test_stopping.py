"""A scheduler's signal reaches every process of a job, the loaders' workers too."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import child_environment

ROOT = Path(__file__).parents[2]

SCRIPT = """
import sys, time
import torch
from torch.utils.data import DataLoader, Dataset
from dream_trainer import DreamTrainerConfig
from dream_trainer.configs import CheckpointParameters, DeviceParameters, TrainingParameters
from dream_trainer.utils.cli import cli
from tests.runtime.tiny import TinyTrainer

class Points(Dataset):
    def __len__(self):
        return 400
    def __getitem__(self, index):
        return {"x": torch.ones(4) * index, "y": torch.ones(2)}

class Trainer(TinyTrainer):
    learning_rate = 1e-6
    def configure_dataloaders(self):
        workers = dict(num_workers=2, persistent_workers=sys.argv[-1] == "persistent")
        return DataLoader(Points(), **workers), DataLoader(Points(), **workers)
    def training_step(self, batch, batch_idx):
        print("TRAINED", flush=True)
        time.sleep(0.02)
        return super().training_step(batch, batch_idx)
    def validation_step(self, batch, batch_idx):
        print("VALIDATED", flush=True)
        time.sleep(0.02)
        return {}

def main(config):
    Trainer(config).fit()

sys.argv, kind = sys.argv[:1], sys.argv[1:]
config = DreamTrainerConfig(
    experiment="run",
    device_parameters=DeviceParameters.SINGLE_DEVICE(param_dtype="float32", compile_model=False),
    training_parameters=TrainingParameters(n_epochs=9, train_steps_per_epoch=20),
    checkpoint_parameters=CheckpointParameters(),
)
sys.argv += kind
from dream_trainer.utils.entrypoint import train
train(main, config)
"""


@pytest.mark.parametrize("kind", ["plain", "persistent"])
@pytest.mark.parametrize("word", ["TRAINED", "VALIDATED"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_to_the_whole_group(
    kind: str, word: str, number: signal.Signals, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    environment = child_environment() | {"PYTHONPATH": f"{ROOT / 'runtime'}:{ROOT}"}
    process = subprocess.Popen(
        [sys.executable, str(script), kind],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        stdout = process.stdout
        told = [] if stdout is None else [next(line for line in stdout if word in line)]
        os.killpg(process.pid, number)
        told.append(process.communicate(timeout=120)[0])
        workers_end_by(process.pid, time.monotonic() + 30)
    finally:
        process.kill()
    assert process.returncode == 75, told
    assert f"{number.name}: saving step" in told[1]
    assert "checkpoint: step" in told[1]


def workers_end_by(group: int, end: float) -> None:
    """Nothing of the job is left over."""
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.2)
    raise TimeoutError("workers outlive their run")
