"""Norms module by module: names, cadence, values, histograms. Real ranks: test_torchmetrics.py."""

from pathlib import Path
from typing import Any

import pytest
import torch

from dream_trainer.callbacks import Callback, LoggerCallback, ModelWatchCallback
from dream_trainer.callbacks.model_watch import module_of
from dream_trainer.configs import LoggingParameters
from dream_trainer.loggers import Logger
from dream_trainer.metrics import Mean
from tests.runtime.tiny import Batch, TinyTrainer, batches, config


@pytest.mark.parametrize(
    ("parameter", "depth", "module"),
    [
        ("model.weight", 1, "model"),
        ("model.embed.weight", 1, "model.embed"),
        ("model.embed.weight", 0, "model"),
        ("model.layers.11.attention.query.weight", 1, "model.layers.11"),
        ("model.layers.11.attention.query.weight", 2, "model.layers.11.attention"),
        ("model.layers.0.2.weight", 1, "model.layers.0.2"),
        ("model.0.weight", 1, "model.0"),
    ],
)
def test_modules(parameter: str, depth: int, module: str) -> None:
    assert module_of(parameter, depth) == module


class Keeps(Logger):
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.spreads: list[tuple[int, Any]] = []

    def spread(self, step: int, histograms: Any) -> None:
        self.spreads.append((step, histograms))


class Notes(Callback):
    """Norms as they are when the optimizer steps, and the logger that keeps histograms."""

    def __init__(self) -> None:
        self.seen: list[dict[str, float]] = []
        self.keeps = Keeps()

    def pre_fit(self, trainer: Any) -> None:
        trainer.loggers.append(self.keeps)

    def pre_optimizer_step(self, trainer: Any, optimizer: Any) -> None:
        norms = {}
        for index, layer in enumerate(trainer.model.layers):
            held = torch.cat([p.detach().flatten() for p in layer.parameters()])
            grads = torch.cat([p.grad.flatten() for p in layer.parameters()])
            norms[f"param_norm/model.layers.{index}"] = held.norm().item()
            norms[f"grad_norm/model.layers.{index}"] = grads.norm().item()
            self.numbers = len(held)
        self.seen.append(norms)


def fit(folder: Path, watch: ModelWatchCallback, kind: type[TinyTrainer] = TinyTrainer) -> Notes:
    notes = Notes()
    logging = LoggingParameters(root_dir=str(folder), log_every_n_steps=2)
    made = config(
        callbacks=[notes, watch, LoggerCallback()], logging=logging, gradient_clip_val=0.1
    )
    made.experiment = "run"
    kind(made, batches(9)).fit()
    return notes


def test_every_nth_logged_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reduced: list[dict[str, float]] = []
    reduce = Mean.reduce
    monkeypatch.setattr(Mean, "reduce", lambda self: reduced.append(reduce(self)) or reduced[-1])
    notes = fit(tmp_path, ModelWatchCallback(every=3))
    watched = [any(name.startswith("grad_norm/") for name in found) for found in reduced]
    # Steps 1, 2, 4, 6, 8, 9 are logged, and the end of the epoch.
    assert watched == [True, False, False, True, False, False, False]
    for step, found in ((1, reduced[0]), (6, reduced[3])):
        for name, value in notes.seen[step - 1].items():
            assert found[name] == pytest.approx(value, rel=1e-5)
    assert notes.keeps.spreads == []


def test_histograms(tmp_path: Path) -> None:
    notes = fit(tmp_path, ModelWatchCallback(every=99, histograms=True))
    (step, gradients), (_, parameters) = notes.keeps.spreads
    assert step == 1
    assert set(parameters) == {f"parameters/model.layers.{n}" for n in range(2)}
    assert set(gradients) == {f"gradients/model.layers.{n}" for n in range(2)}
    for found in parameters.values():
        assert len(found.edges) == len(found.counts) + 1
    assert [sum(h.counts) for h in parameters.values()] == [20, 10]


def test_a_module_without_gradient_or_with_nan(tmp_path: Path) -> None:
    class Odd(TinyTrainer):
        def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
            second = self.model.layers[1]
            loss = second(batch["x"]).sum() * float("nan")
            self.backward(loss)
            self.step(self.optimizer)
            return {}

    class Looks(ModelWatchCallback):
        found: dict[str, Any] = {}

        def post_optimizer_step(self, trainer: Any, optimizer: Any) -> None:
            self.found = {name: float(v) for name, v in trainer._also_logged.items()}

    logging = LoggingParameters(root_dir=str(tmp_path))
    watch, keeps = Looks(histograms=True), Keeps()

    class Adds(Callback):
        def pre_fit(self, trainer: Any) -> None:
            trainer.loggers.append(keeps)

    made = config(
        callbacks=[Adds(), watch, LoggerCallback()], logging=logging, startup_checks=False
    )
    Odd(made, batches(1)).fit()
    assert watch.found["grad_norm/model.layers.0"] == 0.0
    assert watch.found["grad_norm/model.layers.1"] != watch.found["grad_norm/model.layers.1"]
    assert set(keeps.spreads[0][1]) == set()
    assert len(keeps.spreads[1][1]) == 2
