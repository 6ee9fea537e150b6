"""Trains the `lm` project of the working folder once per case, in one process group.

    python train_cases.py CASES.json OUT.json

A case is {"name", "batch_size", "text_file", "weights_file", "device": {DeviceParameters
fields}, "config": {Config fields}}. A single process writes its initial weights to
`weights_file`; several raise unless theirs, put together, equal them. Rank 0 writes, by
name, {"steps": [{"train/loss": ..., "train/grad_norm": ..., "val/loss": ...}, ...],
"dropout": [[coordinate, kept], ...]}.
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path.cwd()))

import torch
import torch.distributed as dist
import torch.nn.functional as F
from config import Config
from torch import Tensor
from torch.distributed.tensor import DTensor
from train import Trainer

from dream_trainer import callbacks
from dream_trainer.configs import DeviceParameters, LoggingParameters, TrainingParameters
from dream_trainer.lifecycle import named_parts
from dream_trainer.utils.entrypoint import guarded


class Recorder(callbacks.Callback):
    """Keeps every logged value of a run, by step, and what its dropout keeps, by rank."""

    logs = True

    def __init__(self, weights: Path) -> None:
        self.weights = weights
        self.steps: list[dict[str, float]] = []
        self.dropout: list[Any] = []

    def post_setup(self, trainer: Any) -> None:
        size = trainer.world.world_size
        kept = F.dropout(torch.ones(64)).bool().tolist()
        self.dropout = gathered((trainer.world.coordinate, kept), size)
        whole = initial_weights(trainer)
        if size == 1:
            torch.save(whole, self.weights)
            return
        expected = torch.load(self.weights)
        together = set().union(*gathered(set(whole), size))
        wrong = [name for name in whole if not torch.equal(whole[name], expected[name])]
        if wrong or together != expected.keys():
            raise RuntimeError(f"Not the weights of one device: {wrong or together}.")

    def post_train_step(self, trainer: Any, result: Any, batch: Any, batch_idx: int) -> None:
        if not trainer.is_accumulating_gradients:
            self.steps.append(dict(trainer.logged))

    def post_validation_epoch(self, trainer: Any, result: dict[str, float]) -> None:
        self.steps[-1] |= result


def gathered(value: Any, size: int) -> list[Any]:
    """Every rank's `value`."""
    values = [value] * size
    if size > 1:
        dist.all_gather_object(values, value)
    return values


def initial_weights(trainer: Any) -> dict[str, Tensor]:
    """Every parameter and buffer of this rank's stages, whole."""
    return {
        f"{root}.{name}": tensor.full_tensor() if isinstance(tensor, DTensor) else tensor.clone()
        for root, model in named_parts(trainer)
        for kind in (model.named_parameters, model.named_buffers)
        for name, tensor in kind()
    }


def train(case: dict[str, Any]) -> dict[str, Any]:
    recorder = Recorder(Path(case["weights_file"]))
    config = Config(
        dim=32,
        num_heads=4,
        num_kv_heads=2,
        hidden_dim=64,
        seq_len=32,
        text_files=(case["text_file"],),
        validation_share=0.05,
        batch_size=case["batch_size"],
        **case["config"],
        device_parameters=DeviceParameters(param_dtype="float32", **case["device"]),
        training_parameters=TrainingParameters(
            max_steps=10, gradient_accumulation_steps=2, gradient_clip_val=0.5
        ),
        logging_parameters=LoggingParameters(enabled=False, log_every_n_steps=1),
        callbacks=[callbacks.LoggerCallback(), recorder],
    )
    trainer = Trainer(config)
    trainer.fit()
    is_zero = trainer.world.is_rank_zero
    return {"steps": recorder.steps, "dropout": recorder.dropout} if is_zero else {}


@guarded
def main() -> None:
    cases = json.loads(Path(sys.argv[1]).read_text())
    results = {case["name"]: train(case) for case in cases}
    if any(results.values()):
        Path(sys.argv[2]).write_text(json.dumps(results))


if __name__ == "__main__":
    main()
