"""A checkpoint of another model, optimizer or run: refused in one clear line, or told of."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dream_trainer.configs import RunError
from tests.runtime.resuming import Net, Plan, Trainer, saving, stop
from tests.runtime.resuming_trainers import Momentum
from tests.runtime.test_checkpoint_failures import PLAN, steps
from tests.runtime.test_resume import TRAINERS


class OtherShape(Trainer):
    def configure_models(self) -> None:
        super().configure_models()
        self.model.layers[1] = nn.Linear(8, 9)  # type: ignore[index]
        self.model.layers[2] = nn.Linear(9, 2)  # type: ignore[index]


class More(Net):
    def __init__(self) -> None:
        super().__init__()
        self.extra = nn.Linear(2, 2)


class OneMore(Trainer):
    def configure_models(self) -> None:
        self.model = More()


class OtherOptimizer(Trainer):
    def make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.model.parameters(), lr=0.1)


class FrozenMeanwhile(Trainer):
    """Its optimizer has no place for some of the moments."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.model.layers.parameters(), lr=0.1)  # type: ignore[union-attr]


class OneGroup(Momentum):
    def make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)

    def make_scheduler(self) -> Any:
        return torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 0.9**step)


class OtherSchedule(Trainer):
    def make_scheduler(self) -> Any:
        return torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)


class NoSchedule(Trainer):
    def configure_schedulers(self) -> Any:
        return {}


class OtherName(Trainer):
    def configure_optimizers(self) -> dict[nn.Module, torch.optim.Optimizer]:
        self.adam = self.optimizer = self.make_optimizer()
        del self.optimizer
        return {self.model: self.adam}

    def configure_schedulers(self) -> Any:
        return {}


CHANGES: dict[str, tuple[type[Trainer], type[Trainer], str]] = {
    "a shape": (Trainer, OtherShape, r"model\.layers\.1\.weight has shape \(9, 8\), in the "),
    "a parameter more": (Trainer, OneMore, r"The checkpoint lacks .*model\.extra\.bias"),
    "a parameter less": (OneMore, Trainer, r"holds .*model\.extra\.bias.*nothing here takes up"),
    "another optimizer": (Trainer, OtherOptimizer, r"optimizer is SGD, in the checkpoint AdamW\."),
    "a part of the optimizer": (Trainer, FrozenMeanwhile, r"norm\.bias\.exp_avg.*nothing here"),
    "an optimizer's name": (Trainer, OtherName, r"optimizers\.optimizer\..*nothing here takes up"),
    "another schedule": (
        Trainer,
        OtherSchedule,
        "the schedule of optimizer is ExponentialLR, in the checkpoint CosineAnnealingLR",
    ),
    "a new schedule": (
        NoSchedule,
        Trainer,
        "the schedule of optimizer is CosineAnnealingLR, in the checkpoint not there",
    ),
    "groups": (Momentum, OneGroup, r"optimizer has 1 parameter groups, its checkpoint 2"),
}


class TestOtherRuns:
    @pytest.mark.parametrize("name", CHANGES)
    def test_a_change_is_one_clear_line(self, name: str, tmp_path: Path) -> None:
        before, after, told = CHANGES[name]
        Plan(trainer=before).run(saving(tmp_path, 100), stop(2))
        with pytest.raises(RunError, match=told) as error:
            Plan(trainer=after).run(saving(tmp_path, 100, resume="run"))
        assert "\n" not in str(error.value)
        assert "tart anew with" in str(error.value) or "init_from" in str(error.value)
        assert steps(tmp_path) == [2]

    def test_a_new_run_does_not_mix_with_an_old_one(self, tmp_path: Path) -> None:
        PLAN.run(saving(tmp_path), stop(3))
        with pytest.raises(RunError, match=r"holds step 3 of an earlier run\. Go on with"):
            PLAN.run(saving(tmp_path))
        assert steps(tmp_path) == [3, 2, 1]

    def test_an_unknown_name(self, tmp_path: Path) -> None:
        with pytest.raises(RunError, match="No checkpoint of 'other' can be resumed in"):
            PLAN.run(saving(tmp_path, resume="other"))

    def test_every_moment_is_taken_up(self, tmp_path: Path) -> None:
        _, before = PLAN.run(saving(tmp_path, 100), stop(3))
        _, after = PLAN.run(saving(tmp_path, resume="run"), stop(3, "pre_epoch"))
        counts = [sum(map(len, t.optimizer.state.values())) for t in (before, after)]
        assert counts == [24, 24]

    def test_a_run_that_is_at_its_end_does_nothing(self, tmp_path: Path) -> None:
        PLAN.run(saving(tmp_path, 100))
        events, trainer = PLAN.run(saving(tmp_path, 100, resume="run"))
        assert events == [] and trainer.global_step == 8


class Longer(Trainer):
    """A configuration that has changed, of the same classes."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.model.parameters(), lr=0.5, weight_decay=0.3)

    def make_scheduler(self) -> Any:
        return torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=99)


def test_what_the_checkpoint_says_otherwise_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Plan().run(saving(tmp_path, 100), stop(3))
    Plan(trainer=Longer).run(saving(tmp_path, 100, resume="run"), stop(4))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("resume:")]
    assert lines[1:] == [
        "resume: optimizer, group 0: initial_lr stays 0.01 as in the checkpoint, not 0.5",
        "resume: optimizer, group 0: weight_decay stays 0.01 as in the checkpoint, not 0.3",
        "resume: the schedule of optimizer: T_max stays 11 as in the checkpoint, not 99",
    ]


def test_nothing_is_told_where_nothing_has_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for trainer in TRAINERS:
        plan = Plan(trainer=trainer)
        plan.run(saving(tmp_path / trainer.__name__, 100), stop(7))
        capsys.readouterr()
        plan.run(saving(tmp_path / trainer.__name__, 100, resume="run"), stop(8))
        assert capsys.readouterr().out.count("resume:") == 1, trainer
