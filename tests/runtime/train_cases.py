"""Trains the `lm` project of the working folder once per case, in one process group.

    python train_cases.py CASES.json OUT.json

A case is {"name", "batch_size", "device": {DeviceParameters fields}}. Rank 0 writes
{"name": [{"train/loss": ..., "train/grad_norm": ..., "val/loss": ...}, ...]}.
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path.cwd()))

from config import Config
from train import Trainer

from dream_trainer import callbacks
from dream_trainer.configs import DeviceParameters, LoggingParameters, TrainingParameters
from dream_trainer.utils.entrypoint import guarded


class Recorder(callbacks.Callback):
    """Keeps every logged value of a run, by step."""

    logs = True

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []

    def post_train_step(self, trainer: Any, result: Any, batch: Any, batch_idx: int) -> None:
        if not trainer.is_accumulating_gradients:
            self.steps.append(dict(trainer.logged))

    def post_validation_epoch(self, trainer: Any, result: dict[str, float]) -> None:
        self.steps[-1] |= result


def train(case: dict[str, Any]) -> list[dict[str, float]]:
    recorder = Recorder()
    config = Config(
        dim=32,
        num_heads=4,
        num_kv_heads=2,
        hidden_dim=64,
        seq_len=32,
        validation_share=0.005,
        batch_size=case["batch_size"],
        device_parameters=DeviceParameters(param_dtype="float32", **case["device"]),
        training_parameters=TrainingParameters(
            max_steps=10, gradient_accumulation_steps=2, gradient_clip_val=0.5
        ),
        logging_parameters=LoggingParameters(enabled=False, log_every_n_steps=1),
        callbacks=[callbacks.LoggerCallback(), recorder],
    )
    trainer = Trainer(config)
    trainer.fit()
    return recorder.steps if trainer.world.is_rank_zero else []


@guarded
def main() -> None:
    cases = json.loads(Path(sys.argv[1]).read_text())
    results = {case["name"]: train(case) for case in cases}
    if any(results.values()):
        Path(sys.argv[2]).write_text(json.dumps(results))


if __name__ == "__main__":
    main()
