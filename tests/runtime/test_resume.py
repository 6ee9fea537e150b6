"""A run that is stopped and goes on is the uninterrupted one, bit by bit.

Losses, validations, learning rates, samples, weights, buffers, moments and schedules are
compared without tolerance. Every case ends at several places, each followed by a new trainer.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.utils.data import DataLoader, DistributedSampler

from dream_trainer.callbacks import CheckpointCallback
from dream_trainer.callbacks.checkpoint import AsyncCheckpointCallback
from dream_trainer.checkpoint.manifest import checkpoints
from dream_trainer.checkpoint.store import Store
from tests.runtime.resuming import (
    Plan,
    Trainer,
    assert_resumes,
    assert_same_state,
    crash,
    rows,
    saving,
    stop,
)
from tests.runtime.resuming_data import (
    LeftResumable,
    Resumable,
    Rows,
    SizedResumable,
    StatefulStream,
    Stream,
    stateful_loader,
)
from tests.runtime.resuming_trainers import (
    Adafactor,
    Adagrad,
    Adversaries,
    Averages,
    Best,
    Frozen,
    Momentum,
    OneCycle,
    Plain,
    RMSprop,
    TensorRate,
    Tied,
)

ENDS = (  # Of epochs of six steps.
    crash(4),  # In the middle of one.
    stop(5),
    stop(6),  # Its last step, before the validation.
    crash(6),  # At its end.
    stop(6, "post_validation_step"),
    stop(12, "post_epoch"),
    stop(14),
)
WORKER_ENDS = (stop(5), stop(6), stop(8))


def own_generator() -> Any:
    return rows(generator=torch.Generator().manual_seed(3))


def distributed() -> Any:
    data = Rows(12)
    sampler: DistributedSampler[Any] = DistributedSampler(data, num_replicas=1, rank=0)
    return DataLoader(data, batch_size=2, sampler=sampler), rows()[1]


def stream(workers: int = 0) -> Any:
    return DataLoader(Stream(12), batch_size=2, num_workers=workers), rows()[1]


def with_replacement() -> Any:
    draws = torch.Generator().manual_seed(5)
    data = Rows(12)
    sampler = torch.utils.data.RandomSampler(data, replacement=True, generator=draws)
    return DataLoader(data, batch_size=2, sampler=sampler), rows()[1]


def weighted() -> Any:
    sampler = torch.utils.data.WeightedRandomSampler(range(1, 13), 12)
    return DataLoader(Rows(12), batch_size=2, sampler=sampler), rows()[1]


LOADERS: dict[str, Callable[[], Any]] = {
    "shuffled by the global stream": rows,
    "a generator of its own": own_generator,
    "DistributedSampler": distributed,
    "with replacement": with_replacement,
    "weighted": weighted,
    "without a length": stream,
    "a state": lambda: (Resumable(), rows()[1]),
    "a state and a length": lambda: (SizedResumable(), rows()[1]),
    "a state and what is left": lambda: (LeftResumable(), rows()[1]),
    "a list": lambda: (list(rows()[0]), rows()[1]),
    "shuffled validation": lambda: (rows()[0], rows(4)[0]),
}
STATEFUL: dict[str, Callable[[int], Any]] = {
    "map": lambda workers: stateful_loader(
        Rows(12, noisy=not workers), shuffle=True, num_workers=workers
    ),
    "stream": lambda workers: stateful_loader(
        StatefulStream(12, noisy=not workers), num_workers=workers
    ),
}


class TestLoaders:
    @pytest.mark.parametrize("name", LOADERS)
    def test_exact(self, name: str, tmp_path: Path) -> None:
        assert_resumes(Plan(LOADERS[name]), tmp_path, ENDS)

    @pytest.mark.parametrize("make", [lambda: rows(num_workers=2), lambda: stream(2)])
    def test_exact_with_workers(self, make: Callable[[], Any], tmp_path: Path) -> None:
        assert_resumes(Plan(make), tmp_path, WORKER_ENDS)

    @pytest.mark.parametrize("kind", STATEFUL)
    def test_exact_with_torchdata(self, kind: str, tmp_path: Path) -> None:
        pytest.importorskip("torchdata")
        assert_resumes(Plan(lambda: (STATEFUL[kind](0), rows()[1])), tmp_path, ENDS)

    @pytest.mark.parametrize("kind", STATEFUL)
    def test_exact_with_torchdata_and_workers(self, kind: str, tmp_path: Path) -> None:
        pytest.importorskip("torchdata")
        plan = Plan(lambda: (STATEFUL[kind](2), rows()[1]))
        assert_resumes(plan, tmp_path, WORKER_ENDS)


LENGTHS: dict[str, tuple[dict[str, Any], Any]] = {
    "a short last window": ({"gradient_accumulation_steps": 4}, (stop(1), stop(2), stop(5))),
    "windows and an end in between": (
        {"gradient_accumulation_steps": 2, "max_steps": 8, "n_epochs": None},
        (stop(2), stop(3), stop(7), crash(4)),
    ),
    "max_steps in an epoch": ({"max_steps": 9, "n_epochs": None}, (stop(4), stop(7), crash(8))),
    "steps of an epoch": ({"train_steps_per_epoch": 4}, (stop(3), stop(4), crash(4), stop(6))),
    "validation every three": (
        {"val_every_n_steps": 3},
        (stop(2), stop(3), crash(3), stop(3, "post_validation_step"), stop(6), stop(14)),
    ),
    "validation every four": (
        {"val_every_n_steps": 4, "n_epochs": 2},
        (stop(4), crash(4), stop(4, "post_validation_step"), stop(6), crash(6), stop(11)),
    ),
    "a part of the validation": (
        {"val_steps_per_epoch": 1, "num_sanity_val_steps": 2},
        (stop(2), stop(6), stop(6, "post_validation_step")),
    ),
    "no validation": ({"val_steps_per_epoch": 0}, (stop(6), crash(6), stop(7))),
    "clipping": ({"gradient_clip_val": 0.1}, (stop(5),)),
}


class TestLengths:
    @pytest.mark.parametrize("name", LENGTHS)
    def test_exact(self, name: str, tmp_path: Path) -> None:
        training, ends = LENGTHS[name]
        assert_resumes(Plan(training=training), tmp_path, ends)

    @pytest.mark.parametrize("name", LENGTHS)
    def test_exact_without_a_length(self, name: str, tmp_path: Path) -> None:
        """The loader is then read ahead of training."""
        training, ends = LENGTHS[name]
        assert_resumes(Plan(stream, training=training), tmp_path, ends)

    @pytest.mark.parametrize("kind", ["a state", "a state and a length"])
    def test_steps_of_an_epoch_of_a_loader_with_a_state(self, kind: str, tmp_path: Path) -> None:
        plan = Plan(LOADERS[kind], training={"train_steps_per_epoch": 4})
        assert_resumes(plan, tmp_path, (stop(3), stop(4), crash(4), stop(6)))


TRAINERS = (
    Plain,
    Momentum,
    Adagrad,
    Adafactor,
    OneCycle,
    TensorRate,
    RMSprop,
    Frozen,
    Tied,
    Adversaries,
)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_optimizers_and_schedules(trainer: type[Trainer], tmp_path: Path) -> None:
    assert_resumes(Plan(trainer=trainer), tmp_path, (crash(5), stop(6), stop(13)))


class TestCallbacks:
    def test_go_on_from_their_state(self, tmp_path: Path) -> None:
        plan = Plan(callbacks=lambda: [Averages(0.5), Best(), Averages(0.9)])
        whole, reference = plan.run()
        for number, saves in enumerate((CheckpointCallback, AsyncCheckpointCallback)):
            root = tmp_path / str(number)
            before, _ = plan.run(saving(root, 100), stop(8), saves)
            after, trainer = plan.run(saving(root, 100, resume="run"))
            assert before + after == whole
            for own, other in zip(trainer.callbacks, reference.callbacks, strict=False):
                if isinstance(own, Averages):
                    assert isinstance(other, Averages)
                    assert own.count == other.count == 18
                    assert torch.equal(own.history, other.history)
            assert trainer.callbacks[Best].seen == reference.callbacks[Best].seen  # type: ignore[attr-defined]

    def test_a_new_one_begins_anew(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        Plan().run(saving(tmp_path, 100), stop(8))
        plan = Plan(callbacks=lambda: [Best()])
        _, trainer = plan.run(saving(tmp_path, 100, resume="run"))
        assert "resume: Best is not in the checkpoint: it begins anew" in capsys.readouterr().out
        assert len(trainer.callbacks[Best].seen["losses"]) == 10  # type: ignore[attr-defined]

    def test_one_that_has_gone_is_no_matter(self, tmp_path: Path) -> None:
        whole, _ = Plan().run()
        before, _ = Plan(callbacks=lambda: [Best()]).run(saving(tmp_path, 100), stop(8))
        after, _ = Plan().run(saving(tmp_path, 100, resume="run"))
        assert before + after == whole


class TestSaving:
    @pytest.mark.parametrize("saves", [CheckpointCallback, AsyncCheckpointCallback])
    @pytest.mark.parametrize("data", [rows, stream, LOADERS["a state"]])
    def test_changes_nothing(self, saves: Any, data: Any, tmp_path: Path) -> None:
        plan = Plan(data, training={"val_every_n_steps": 2, "n_epochs": 2})
        whole, reference = plan.run()
        saved, trainer = plan.run(saving(tmp_path), None, saves)
        assert saved == whole
        assert_same_state(trainer, reference)

    def test_does_not_move_the_counters_of_adam(self, tmp_path: Path) -> None:
        _, trainer = Plan().run(saving(tmp_path), stop(3))
        assert {s["step"].item() for s in trainer.optimizer.state.values()} == {3.0}
        _, trainer = Plan().run(saving(tmp_path, resume="run"), stop(5))
        assert {s["step"].item() for s in trainer.optimizer.state.values()} == {5.0}

    def test_behind_the_back_writes_the_same(self, tmp_path: Path) -> None:
        found = []
        for number, saves in enumerate((CheckpointCallback, AsyncCheckpointCallback)):
            Plan().run(saving(tmp_path / str(number)), crash(7), saves)
            folder = tmp_path / str(number) / "run/checkpoints"
            found.append({c.name: c.manifest.tensors for c in checkpoints(Store(folder))})
            found[-1] |= tensors_of(folder / "step-00000006")
        assert found[0] == found[1]

    def test_resumed_again_and_again(self, tmp_path: Path) -> None:
        plan = Plan(stream, training={"gradient_accumulation_steps": 2})
        whole, reference = plan.run()
        events, trainer = plan.run(saving(tmp_path, 100), stop(1))
        for step in range(2, 10):
            more, trainer = plan.run(
                saving(tmp_path, 100, resume="run"), stop(step) if step < 9 else None
            )
            events += more
        assert events == whole
        assert_same_state(trainer, reference)


def tensors_of(folder: Path) -> dict[str, Any]:
    """Every tensor of a checkpoint, as a list."""
    reader = Store(folder.parent).reader(folder.name)
    metadata = reader.read_metadata()
    state = {
        key: torch.empty(entry.size, dtype=entry.properties.dtype)
        for key, entry in metadata.state_dict_metadata.items()
        if isinstance(entry, TensorStorageMetadata)
    }
    dcp.load(
        state,
        storage_reader=reader,
        planner=DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False),
    )
    return {key: tensor.tolist() for key, tensor in state.items()}
