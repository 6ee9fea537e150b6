"""The bar on a terminal: what it shows, and that it is nowhere else."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dream_trainer.callbacks import ProgressBar
from tests.conftest import child_environment

ROOT = Path(__file__).parents[2]

SCRIPT = """
import time
from dream_trainer import DreamTrainerConfig
from dream_trainer.callbacks import LoggerCallback, ProgressBar
from dream_trainer.configs import DeviceParameters, LoggingParameters, TrainingParameters
from tests.runtime.tiny import TinyTrainer, batches

class Slow:
    def __len__(self):
        return 20
    def __iter__(self):
        for batch in batches(20):
            time.sleep(0.06)
            yield batch

class Trainer(TinyTrainer):
    def training_step(self, batch, batch_idx):
        time.sleep(0.02)
        return super().training_step(batch, batch_idx)

Trainer(DreamTrainerConfig(
    experiment="bar",
    callbacks=[ProgressBar(), LoggerCallback()],
    device_parameters=DeviceParameters.SINGLE_DEVICE(param_dtype="float32", compile_model=False),
    logging_parameters=LoggingParameters(log_every_n_steps=5),
    training_parameters=TrainingParameters(n_epochs=1),
), train=Slow()).fit()
"""


def on_a_terminal(script: Path) -> str:
    """Everything that `script` writes to a terminal of 160 columns."""
    ours, theirs = pty.openpty()
    environment = child_environment() | {"TERM": "xterm", "COLUMNS": "160", "LINES": "40"}
    environment["PYTHONPATH"] = f"{ROOT / 'runtime'}:{ROOT}"
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=theirs,
        stderr=theirs,
        env=environment,
        cwd=script.parent,
        start_new_session=True,
    )
    os.close(theirs)
    written, end = b"", time.monotonic() + 120
    try:
        while time.monotonic() < end:
            if not select.select([ours], [], [], 1)[0]:
                continue
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # The other side has been closed.
                break
            if not chunk:
                break
            written += chunk
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written.decode())


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def test_on_a_terminal(script: Path) -> None:
    shown = on_a_terminal(script)
    bars = [line for line in re.split(r"[\r\n]+", shown) if "training" in line and "/20" in line]
    assert len(bars) > 3
    done = [int(found[1]) for bar in bars if (found := re.search(r"(\d+)/20", bar))]
    assert done == sorted(done) and done[-1] >= 15
    last = bars[-1]
    assert re.search(r"train/loss \d", last) and re.search(r"[\d,]+ samples/s", last)
    waits = [int(found[1]) for bar in bars[3:] if (found := re.search(r"data (\d+)%", bar))]
    assert waits and 50 <= waits[-1] <= 90, "the loader takes three quarters of the time"
    assert "step 20/20  train/loss" in shown, "the log's lines stand above the bar"


def test_not_elsewhere(script: Path) -> None:
    environment = child_environment() | {"PYTHONPATH": f"{ROOT / 'runtime'}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        cwd=script.parent,
        check=True,
    )
    assert "training" not in done.stdout and "%" not in done.stdout
    assert "step 20/20  train/loss" in done.stdout


def test_a_chosen_metric() -> None:
    class Trainer:
        item = "tokens"
        reader = None
        logged = {"train/loss": 2.0, "train/accuracy": 0.25, "perf/tokens_per_second": 1234.5}

    trainer: object = Trainer()
    assert ProgressBar().values(trainer, 1.0) == "train/loss 2  1,234 tokens/s  data 0%"  # type: ignore[arg-type]
    chosen = ProgressBar("train/accuracy").values(trainer, 1.0)  # type: ignore[arg-type]
    assert chosen == "train/accuracy 0.25  1,234 tokens/s  data 0%"
