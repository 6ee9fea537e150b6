"""Metrics of torchmetrics: exact over uneven data and over ranks that see the same.

Of the failure modes: 56 (repeated batches counted, metrics left local), 57 (uneven
validation), 49 (only rank 0 logs, and nobody waits for it; names that differ: test_data.py).
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torchmetrics
from torch import nn
from torchmetrics.classification import (
    BinaryAccuracy,
    BinaryAUROC,
    BinaryF1Score,
    MulticlassAccuracy,
    MulticlassConfusionMatrix,
)

from dream_trainer.callbacks import LoggerCallback, MetricLoggerCallback
from dream_trainer.checkpoint.state import model_state
from dream_trainer.configs import LoggingParameters, RunError
from dream_trainer.metrics import is_metric
from tests.runtime import logging_cases, wandb_files
from tests.runtime.tiny import Batch, TinyTrainer, batches, config, joined, set_up


@pytest.fixture(scope="module")
def four_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of `logging_cases`."""
    from tests.conftest import run_torchrun

    pytest.importorskip("wandb")
    folder = tmp_path_factory.mktemp("ranks")
    script = Path(logging_cases.__file__)
    done = run_torchrun(4, script, folder, cwd=folder, env={"WANDB_SILENT": "true"})
    assert done.returncode == 0, done.stderr
    return folder / "run"


def values(log: Path) -> dict[str, float]:
    """The newest value of everything."""
    found: dict[str, float] = {}
    for line in log.read_text().splitlines():
        found |= json.loads(line)
    return found


class TestFourRanks:
    def test_every_sample_counts_once(self, four_ranks: Path) -> None:
        data = joined([batch for share in (0, 1) for batch in logging_cases.rows(share)])
        scores, labels = data["score"], data["label"]
        assert len(labels) == 7
        auroc = BinaryAUROC()(scores, labels)
        expected = {
            "metrics/accuracy": BinaryAccuracy()(scores, labels),
            "metrics/ranking": auroc,
            "metrics/scores/auroc": auroc,
            "metrics/scores/f1": BinaryF1Score()(scores, labels),
            "metrics/nested/parts/0": scores.mean(),
            "metrics/count": torch.tensor(7.0),
        }
        found = values(four_ranks / "log.jsonl")
        for name, value in expected.items():
            assert found[name] == pytest.approx(value.item(), rel=1e-6), name
        trained = torch.cat([b["x"].sum(1) for s in (0, 1) for b in batches(2, seed=s)])
        assert found["metrics/trained"] == pytest.approx(trained.mean().item(), rel=1e-5)

    def test_only_rank_zero_logs(self, four_ranks: Path) -> None:
        assert len(wandb_files.runs(four_ranks)) == 1
        assert len(list((four_ranks / "tensorboard").iterdir())) == 1
        lines = (four_ranks / "log.jsonl").read_text().splitlines()
        assert [json.loads(line).get("event") for line in lines].count("start") == 1
        rows = wandb_files.history(wandb_files.runs(four_ranks)[0])
        assert [row["step"] for row in rows if "train/loss" in row] == [1, 2]
        pictures = [row for row in rows if row.get("first/_type")]
        # Its own share, once: a list of pictures would be images/separated.
        assert [row["first/_type"] for row in pictures] == ["image-file"]

    def test_norms_are_those_of_whole_tensors(self, four_ranks: Path) -> None:
        model = set_up(TinyTrainer(config())).model
        lines = (four_ranks / "log.jsonl").read_text().splitlines()
        record = next(
            r for line in lines if "param_norm/model.layers.0" in (r := json.loads(line))
        )
        parts = [batches(2, seed=share)[0] for share in (0, 1)]
        loss = nn.functional.mse_loss(model(joined(parts)["x"]), joined(parts)["y"])
        loss.backward()
        for place, layer in enumerate(model.layers):
            tensors = list(layer.parameters())
            norm = torch.cat([p.detach().flatten() for p in tensors]).norm()
            grad = torch.cat([p.grad.flatten() for p in tensors if p.grad is not None]).norm()
            name = f"model.layers.{place}"
            assert record[f"param_norm/{name}"] == pytest.approx(norm.item(), rel=1e-5)
            assert record[f"grad_norm/{name}"] == pytest.approx(grad.item(), rel=1e-5)


class Measured(TinyTrainer):
    """One metric for training, one for validation."""

    def configure_metrics(self) -> None:
        self.seen = torchmetrics.SumMetric()
        self.trained = torchmetrics.SumMetric()
        self.of_classes = MulticlassAccuracy(3, average=None)
        self.confusion = MulticlassConfusionMatrix(3)

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        self.trained.update(1.0)
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        self.seen.update(1.0)
        labels = torch.tensor([0, 1, 2, 2])
        self.of_classes.update(torch.tensor([0, 1, 2, 0]), labels)
        self.confusion.update(labels, labels)
        return super().validation_step(batch, batch_idx)


def fit(
    folder: Path, kind: type[TinyTrainer], **training: Any
) -> tuple[TinyTrainer, list[dict[str, Any]]]:
    logging = LoggingParameters(root_dir=str(folder), log_every_n_steps=1)
    # The order of the two does not matter.
    made = config(
        callbacks=[LoggerCallback(), MetricLoggerCallback()], logging=logging, **training
    )
    made.experiment = "run"
    trainer = kind(made, batches(4), batches(3, seed=1))
    trainer.fit()
    lines = (folder / "run/log.jsonl").read_text().splitlines()
    return trainer, [json.loads(line) for line in lines]


def test_each_validation_and_each_epoch_begins_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer, records = fit(
        tmp_path, Measured, n_epochs=2, val_every_n_steps=2, num_sanity_val_steps=2
    )
    seen = [(r["step"], r["metrics/seen"]) for r in records if "metrics/seen" in r]
    assert seen == [(2, 3.0), (4, 3.0), (6, 3.0), (8, 3.0)]
    assert all("val/loss" in r for r in records if "metrics/seen" in r)
    trained = [(r["step"], r["metrics/trained"]) for r in records if "metrics/trained" in r]
    assert trained == [(4, 4.0), (8, 4.0)]  # Validations in between leave it alone.
    last = next(record for record in records if "metrics/seen" in record)
    assert [last[f"metrics/of_classes/{n}"] for n in range(3)] == [1.0, 1.0, 0.5]
    assert not any(name.startswith("metrics/confusion") for r in records for name in r)
    error = capsys.readouterr().err
    assert error == (
        "warning: metrics/confusion is not one number, nor a few: it is not logged.\n"
    )
    assert trainer.logged["metrics/seen"] == 3.0


def test_metrics_are_no_models(tmp_path: Path) -> None:
    class All(Measured):
        def configure_metrics(self) -> None:
            super().configure_metrics()
            self.listed = nn.ModuleList([torchmetrics.SumMetric()])
            self.collected = torchmetrics.MetricCollection([torchmetrics.SumMetric()])
            self.trained.persistent(True)

    trainer, _ = fit(tmp_path, All)
    assert list(trainer.named_models()) == ["model"]
    assert all(key.startswith("model.") for key in model_state(trainer))
    callback: Any = trainer.callbacks["MetricLoggerCallback"]
    names = {"seen", "trained", "of_classes", "confusion", "listed/0", "collected"}
    assert set(callback.metrics) == names


def test_what_is_no_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (nn.Linear(1, 1), nn.ModuleList(), nn.ModuleList([nn.Linear(1, 1)]), 3, None):
        assert not is_metric(value)
    metric = torchmetrics.SumMetric()
    assert is_metric(metric) and is_metric(nn.ModuleDict({"a": metric}))
    assert not is_metric(nn.ModuleList([metric, nn.Linear(1, 1)]))
    monkeypatch.delitem(sys.modules, "torchmetrics")
    assert not is_metric(metric)  # Who has not imported it has none.


@pytest.mark.parametrize("every", [None, 2])
def test_one_metric_for_both_is_an_error(every: int | None, tmp_path: Path) -> None:
    class Mixed(Measured):
        def validation_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
            self.trained.update(1.0)
            return super().validation_step(batch, batch_idx)

    with pytest.raises(RunError) as caught:
        fit(tmp_path, Mixed, val_every_n_steps=every)
    assert str(caught.value) == (
        "self.trained is updated by training_step and by validation_step, which would mix "
        "them. Assign one metric for each."
    )


def test_a_metric_made_too_early_is_an_error(tmp_path: Path) -> None:
    class Early(TinyTrainer):
        def configure_models(self) -> None:
            super().configure_models()
            self.accuracy = BinaryAccuracy()

    with pytest.raises(RunError) as caught:
        fit(tmp_path, Early)
    assert str(caught.value) == (
        "self.accuracy was made in configure_models, whose tensors hold no values. "
        "Assign it in configure_metrics."
    )
