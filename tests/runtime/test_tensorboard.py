"""TensorBoard: what its own reader finds."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from dream_trainer.callbacks import (
    CheckpointCallback,
    LoggerCallback,
    MediaLoggerCallback,
    ModelWatchCallback,
)
from dream_trainer.configs import CheckpointParameters, LoggingParameters
from dream_trainer.loggers import Audio, Table
from tests.runtime.tiny import Batch, TinyTrainer, batches, config


def media(trainer: Any, batch: Any, result: Any) -> dict[str, Any]:
    return {
        "picture": [torch.zeros(3, 4, 5), torch.ones(4, 5)],
        "sound": Audio(torch.zeros(80), rate=8),
        "table": Table(["a"], [[1], [2]]),
        "text": "said",
    }


class Fails(TinyTrainer):
    at: int | None = None

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        if self.global_step == self.at:
            raise ZeroDivisionError
        return super().training_step(batch, batch_idx) | {"pass": 1.0 if self.at else 2.0}


def trainer(folder: Path, resume: bool = False) -> Fails:
    watch = ModelWatchCallback(every=3, histograms=True)
    made = config(
        callbacks=[CheckpointCallback(), watch, MediaLoggerCallback(media), LoggerCallback()],
        logging=LoggingParameters(root_dir=str(folder), log_every_n_steps=1, tensorboard=True),
    )
    made.checkpoint_parameters = CheckpointParameters(
        root_dir=str(folder), checkpoint_every_n_steps=2, resume="run" if resume else None
    )
    made.experiment = "run"
    return Fails(made, batches(6), batches(1, seed=1))


def test_read_back_after_a_resume(tmp_path: Path) -> None:
    first = trainer(tmp_path)
    first.at = 3
    with pytest.raises(ZeroDivisionError):
        first.fit()
    second = trainer(tmp_path, resume=True)
    second.fit()
    sizes = {"images": 9, "histograms": 9, "scalars": 99, "tensors": 9, "audio": 9}
    found = EventAccumulator(str(tmp_path / "run/tensorboard"), size_guidance=sizes)
    found.Reload()
    # Step 3 of the first attempt is past the checkpoint: forgotten.
    assert [(e.step, e.value) for e in found.Scalars("pass")] == [
        *((step, 1.0) for step in (1, 2)),
        *((step, 2.0) for step in (3, 4, 5, 6)),
    ]
    (held_out,) = found.Scalars("val/loss")
    assert held_out.step == 6
    assert held_out.value == pytest.approx(second.logged["val/loss"], rel=1e-6)
    assert {"picture/0", "picture/1"} == set(found.Tags()["images"])
    (picture,) = found.Images("picture/1")
    assert (picture.step, picture.width, picture.height) == (6, 5, 4)
    assert [event.step for event in found.Audio("sound")] == [6]
    names = {tag.removesuffix("/text_summary") for tag in found.Tags()["tensors"]}
    assert names == {"config", "table", "text"}
    said = [event.tensor_proto.string_val[0] for event in found.Tensors("text/text_summary")]
    assert said == [b"said"]
    histograms = found.Histograms("parameters/model.layers.0")
    assert [event.step for event in histograms] == [1, 3, 6]
    assert histograms[0].histogram_value.num == 20


def test_none_unless_asked_for(tmp_path: Path) -> None:
    made = config(callbacks=[LoggerCallback()], logging=LoggingParameters(root_dir=str(tmp_path)))
    made.experiment = "run"
    TinyTrainer(made, batches(1)).fit()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["log.jsonl"]
