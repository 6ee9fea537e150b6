"""Trainers whose every number depends on where they are, and what ends and follows them."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from dream_trainer import DreamTrainer, DreamTrainerConfig
from dream_trainer.callbacks import Callback, CheckpointCallback
from dream_trainer.callbacks.checkpoint import AsyncCheckpointCallback
from dream_trainer.configs import CheckpointParameters, LoggingParameters, TrainingParameters
from tests.conftest import close_process_group
from tests.runtime.resuming_data import Rows
from tests.runtime.tiny import single

Loaders = tuple[Iterable[Any], Iterable[Any] | None]
Event = tuple[Any, ...]


class Net(nn.Module):
    """Dropout, and buffers that every step changes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2)])
        self.norm = nn.BatchNorm1d(8)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.dropout(self.norm(self.layers[0](x)).tanh())
        return self.layers[2](self.layers[1](x).tanh())


class Trainer(DreamTrainer):
    """AdamW and a schedule that changes at every step, unless a test derives another."""

    def __init__(self, config: DreamTrainerConfig, data: Callable[[], Loaders]) -> None:
        super().__init__(config)
        self.data = data

    def configure_models(self) -> None:
        self.model: nn.Module = Net()

    def make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.model.parameters(), lr=0.01)

    def make_scheduler(self) -> Any:
        return torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=11)

    def configure_optimizers(self) -> dict[nn.Module, torch.optim.Optimizer]:
        self.optimizer = self.make_optimizer()
        return {self.model: self.optimizer}

    def configure_schedulers(self) -> Any:
        return {self.optimizer: self.make_scheduler()}

    def configure_dataloaders(self) -> Loaders:
        return self.data()

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> dict[str, Any]:
        noise = 0.1 * (random.random() + numpy.random.rand())
        loss = F.mse_loss(self.model(batch["x"] + noise), batch["y"])
        self.backward(loss)
        self.step(self.optimizer)
        return {"train/loss": loss}

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> dict[str, Any]:
        return {"val/loss": F.mse_loss(self.model(batch["x"] + torch.randn(4)), batch["y"])}


class Trace(Callback):
    """Everything that can differ, in order."""

    logs = True

    def __init__(self) -> None:
        self.events: list[Event] = []

    def post_train_step(self, trainer: Any, result: Any, batch: Any, batch_idx: int) -> None:
        rates = [g["lr"] for o in trainer.optimizers.values() for g in o.param_groups]
        values = sorted((k, v.item()) for k, v in result.items() if isinstance(v, Tensor))
        ids = tuple(batch["id"].tolist())
        place = (trainer.epoch, trainer.global_step, batch_idx)
        self.events.append(("train", *place, ids, values, [float(rate) for rate in rates]))

    def post_validation_epoch(self, trainer: Any, result: dict[str, float]) -> None:
        self.events.append(("val", trainer.epoch, trainer.global_step, sorted(result.items())))


class Crash(Exception):
    """What a test ends a run with."""


class End(Callback):
    """Ends a run at `event`, after `step` optimizer steps: by an exception, or politely."""

    def __init__(self, event: str, step: int, politely: bool) -> None:
        self.event, self.step, self.politely = event, step, politely

    def _end(self, event: str, trainer: Any) -> None:
        if event != self.event or trainer.global_step != self.step or trainer.is_sanity_check:
            return
        if trainer.is_accumulating_gradients and event == "post_train_step":
            return
        if not self.politely:
            raise Crash
        trainer.is_stopping = True

    def pre_epoch(self, trainer: Any) -> None:
        self._end("pre_epoch", trainer)

    def pre_train_step(self, trainer: Any, batch: Any, batch_idx: int) -> None:
        if trainer.batches_in_window == 1:  # Not in the middle of one.
            self._end("pre_train_step", trainer)

    def post_train_step(self, trainer: Any, result: Any, batch: Any, batch_idx: int) -> None:
        self._end("post_train_step", trainer)

    def post_validation_step(self, trainer: Any, result: Any, batch: Any, batch_idx: int) -> None:
        self._end("post_validation_step", trainer)

    def post_epoch(self, trainer: Any) -> None:
        self._end("post_epoch", trainer)


def crash(step: int) -> End:
    return End("pre_train_step", step, politely=False)


def stop(step: int, event: str = "post_train_step") -> End:
    return End(event, step, politely=True)


def rows(count: int = 12, **options: Any) -> Loaders:
    """A plain loader of 6 shuffled batches, noise in its dataset, and one to validate on."""
    options = {"batch_size": 2, "shuffle": True} | options
    return DataLoader(Rows(count), **options), DataLoader(Rows(4), batch_size=2)


@dataclass
class Plan:
    """What is trained on what, and for how long."""

    data: Callable[[], Loaders] = rows
    trainer: type[Trainer] = Trainer
    training: dict[str, Any] = field(default_factory=dict)
    callbacks: Callable[[], list[Callback]] = list
    ends: Sequence[End] = (crash(4), stop(5), stop(6), stop(12, "post_epoch"))

    def config(
        self, callbacks: Sequence[Callback], checkpoints: CheckpointParameters | None
    ) -> DreamTrainerConfig:
        return DreamTrainerConfig(
            experiment="run",
            device_parameters=single(),
            training_parameters=TrainingParameters(**({"n_epochs": 3} | self.training)),
            logging_parameters=LoggingParameters(enabled=False),
            checkpoint_parameters=checkpoints,
            callbacks=[*self.callbacks(), *callbacks],
        )

    def run(
        self,
        checkpoints: CheckpointParameters | None = None,
        end: End | None = None,
        saves: type[CheckpointCallback] = CheckpointCallback,
    ) -> tuple[list[Event], Trainer]:
        """Train until `end`, in a process world of its own."""
        trace = Trace()
        own = [trace, *([end] if end else []), *([saves()] if checkpoints else [])]
        trainer = self.trainer(self.config(own, checkpoints), self.data)
        try:
            trainer.fit()
        except Crash:
            assert end is not None and not end.politely
        close_process_group()
        return trace.events, trainer


def saving(root: Path | str, every: int = 1, **options: Any) -> CheckpointParameters:
    """A checkpoint after every so many steps."""
    return CheckpointParameters(root_dir=str(root), checkpoint_every_n_steps=every, **options)


def assert_resumes(plan: Plan, root: Path, ends: Sequence[End] | None = None) -> None:
    """A run that is ended anywhere and goes on is the uninterrupted one, bit by bit."""
    whole, reference = plan.run()
    for number, end in enumerate(plan.ends if ends is None else ends):
        folder = root / str(number)
        saves = AsyncCheckpointCallback if number % 2 else CheckpointCallback
        every = 100 if end.politely else 1
        before, _ = plan.run(saving(folder, every), end, saves)
        after, trainer = plan.run(saving(folder, 100, resume="run"), None, saves)
        assert len(before) < len(whole), f"{vars(end)} never came"
        assert trainer.start_step == end.step
        assert_same_events(before + after, whole, end)
        assert_same_state(trainer, reference)


def assert_same_events(events: list[Event], expected: list[Event], end: End) -> None:
    for number, (own, other) in enumerate(zip(events, expected, strict=False)):
        assert own == other, (vars(end), number)
    assert len(events) == len(expected), vars(end)


def assert_same_state(trainer: Trainer, reference: Trainer) -> None:
    """Weights, buffers, moments, schedules and counters."""
    found, expected = (state_of(t) for t in (trainer, reference))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        same = (
            torch.equal(found[name], value)
            if isinstance(value, Tensor)
            else str(found[name]) == str(value)
        )
        assert same, (name, found[name], value)
    for counter in ("epoch", "global_step", "epoch_steps", "validated_step"):
        assert getattr(trainer, counter) == getattr(reference, counter), counter


def state_of(trainer: Trainer) -> dict[str, Any]:
    state: dict[str, Any] = {}
    for name, model in trainer.named_models().items():
        state |= {f"{name}.{key}": value for key, value in model.state_dict().items()}
    for name, optimizer in trainer.optimizers.items():
        packed = optimizer.state_dict()
        state[f"{name}.groups"] = packed["param_groups"]
        for index, values in packed["state"].items():
            state |= {f"{name}.{index}.{key}": value for key, value in values.items()}
        if scheduler := trainer.schedulers.get(optimizer):
            state[f"{name}.scheduler"] = plain(scheduler.state_dict())
    return state


def plain(value: Any) -> Any:
    """Without the addresses that the text of an object would hold."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in sorted(value.items(), key=str)}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value if isinstance(value, (int, float, str, bool, type(None))) else type(value)
