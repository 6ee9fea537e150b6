"""What four ranks log, two of data times two that see the same: run by torchrun.

Rank 0 reads 2 rows of validation in one batch, the other data rank 5 rows in 3: rank 0 then
repeats its batch twice.
"""

import os
import sys
from pathlib import Path
from typing import Any

import torch
import torchmetrics
from torch import Tensor
from torchmetrics.classification import BinaryAccuracy, BinaryAUROC, BinaryF1Score

from dream_trainer.callbacks import (
    LoggerCallback,
    LRLoggerCallback,
    MediaLoggerCallback,
    MetricLoggerCallback,
    ModelWatchCallback,
)
from dream_trainer.configs import DeviceParameters, WandbLoggingParameters
from dream_trainer.utils.entrypoint import guarded
from tests.runtime.tiny import FLOAT32, Batch, TinyTrainer, batches, config

SHARES = ((2,), (2, 2, 1))
"""Rows of each batch of each data rank."""


def rows(share: int) -> list[Batch]:
    """The validation batches of a data rank."""
    draws = torch.Generator().manual_seed(share)
    return [
        {
            "x": torch.randn(count, 4, generator=draws),
            "y": torch.randn(count, 2, generator=draws),
            "score": torch.rand(count, generator=draws),
            "label": torch.randint(2, (count,), generator=draws),
        }
        for count in SHARES[share]
    ]


class Measured(TinyTrainer):
    """Metrics of all kinds: sums, lists of samples, a collection, nested ones."""

    def configure_metrics(self) -> None:
        self.accuracy = BinaryAccuracy()
        self.ranking = BinaryAUROC()  # Keeps every sample.
        self.scores = torchmetrics.MetricCollection(
            {"f1": BinaryF1Score(), "auroc": BinaryAUROC()}
        )
        self.nested = {"parts": torch.nn.ModuleList([torchmetrics.MeanMetric()])}
        self.trained = torchmetrics.MeanMetric()
        self.count = torchmetrics.SumMetric()

    def apply_tensor_parallel(self, tp_mesh: Any) -> None:
        """Nothing is split: both ranks see the same."""

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        self.trained.update(batch["x"].sum(1))
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        self.accuracy(batch["score"], batch["label"])
        for metric in (self.ranking, self.scores):
            metric.update(batch["score"], batch["label"])
        self.count.update(len(batch["label"]))
        part: Any = self.nested["parts"][0]
        part.update(batch["score"])
        shown: Tensor = batch["x"][0].reshape(2, 2)
        return {**super().validation_step(batch, batch_idx), "media": {"first": shown}}


@guarded
def main(folder: Path) -> None:
    parameters = DeviceParameters.FSDP(dp_shard=2, tensor_parallel=2, **FLOAT32)
    logging = WandbLoggingParameters(
        root_dir=str(folder), mode="offline", tensorboard=True, log_every_n_steps=1
    )
    made = config(
        parameters,
        [
            MetricLoggerCallback(),
            LRLoggerCallback(),
            ModelWatchCallback(every=1, histograms=True),
            MediaLoggerCallback(),
            LoggerCallback(),
        ],
        logging,
        startup_checks=False,
    )
    made.experiment = "run"
    trainer = Measured(made)
    share = int(os.environ["RANK"]) // 2
    trainer.train_data, trainer.val_data = batches(2, seed=share), rows(share)
    trainer.fit()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
