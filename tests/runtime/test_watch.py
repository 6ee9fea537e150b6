"""`detect_anomaly` names the operation, `warn_on_sync` warns around training steps alone."""

from typing import Any

import pytest
import torch

from dream_trainer.checks.watch import watched
from dream_trainer.configs import DreamTrainerConfig
from dream_trainer.utils.modifiers import MODIFIERS
from tests.runtime.tiny import Batch, TinyTrainer, batches, config, set_up


class Broken(TinyTrainer):
    """The gradient of a root at zero, times zero."""

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        assert torch.is_anomaly_enabled() == self.config.training_parameters.detect_anomaly
        loss = (self.model(batch["x"]) * 0).sqrt().sum()
        self.backward(loss)
        self.step(self.optimizer)
        return {}


def of_flags(*flags: str, **training: Any) -> DreamTrainerConfig:
    made = config(**training)
    for flag in flags:
        MODIFIERS[flag].apply(made, True)
    return made


def test_anomalies_pass_without_it() -> None:
    Broken(of_flags(), batches(1)).fit()


def test_an_anomaly_is_named() -> None:
    with (
        pytest.warns(UserWarning, match=r"(?s)Error detected in MulBackward0.*\.sqrt\(\)\.sum"),
        pytest.raises(RuntimeError, match="'MulBackward0' returned nan values"),
    ):
        Broken(of_flags("--detect-anomaly"), batches(1)).fit()
    assert not torch.is_anomaly_enabled()


def test_a_sound_run_goes_on() -> None:
    TinyTrainer(of_flags("--detect-anomaly"), batches(2)).fit()


def test_off_costs_nothing() -> None:
    trainer = set_up(TinyTrainer(config(), batches(1)))
    step = trainer.training_step
    assert watched(trainer, step) is step


def test_no_syncs_on_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    TinyTrainer(of_flags("--warn-on-sync", n_epochs=2), batches(2)).fit()
    told = capsys.readouterr().out
    assert told == "warn_on_sync=True has no effect on cpu: it needs CUDA.\n"


def test_syncs_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    mode: list[Any] = [0]
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: mode[-1])
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", mode.append)
    trainer = set_up(TinyTrainer(of_flags("--warn-on-sync"), batches(1)))
    trainer.world.device = torch.device("cuda")

    def step(batch: Any, batch_idx: int) -> dict[str, Any]:
        assert mode[-1] == "warn"
        if batch_idx:
            raise ZeroDivisionError
        return {}

    run = watched(trainer, step)
    assert mode == [0]
    run(None, 0)
    with pytest.raises(ZeroDivisionError):
        run(None, 1)
    assert mode == [0, "warn", 0, "warn", 0]
