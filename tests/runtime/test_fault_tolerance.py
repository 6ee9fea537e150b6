"""Replica groups: two real ones that average, one of which dies and comes back; and the wiring."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dream_trainer.callbacks import Callback, EMACallback, FaultToleranceCallback
from dream_trainer.configs import (
    ConfigError,
    DeviceParameters,
    FaultToleranceParameters,
    RunError,
)
from tests.conftest import child_environment, end_family
from tests.runtime import replica_group
from tests.runtime.tiny import FLOAT32, Batch, TinyTrainer, batches, config, joined, set_up

LIMIT = 120

Start = Callable[..., "subprocess.Popen[str]"]


@contextmanager
def groups(folder: Path, least: int) -> Iterator[Start]:
    """`start(group, role, ...)` starts a replica group beside a lighthouse."""
    coordination = pytest.importorskip("torchft.coordination")
    lighthouse = coordination.LighthouseServer(
        bind="[::]:0", min_replicas=least, join_timeout_ms=10_000, heartbeat_timeout_ms=2_000
    )
    running: list[subprocess.Popen[str]] = []

    def start(group: int, *role: str) -> "subprocess.Popen[str]":
        out = folder / f"{group}.pt"
        command = [sys.executable, replica_group.__file__, str(group), lighthouse.address()]
        with (folder / f"{group}-{role[0]}.txt").open("w") as output:
            process = subprocess.Popen(
                [*command, str(out), *role],
                cwd=folder,
                env=child_environment(),
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        running.append(process)
        return process

    try:
        yield start
    finally:
        for process in running:
            end_family(process)
        lighthouse.shutdown()


def ended(folder: Path, group: int, process: "subprocess.Popen[str]") -> dict[str, Any]:
    """What a group wrote."""
    told = "\n".join(path.read_text() for path in folder.glob(f"{group}-*.txt"))
    assert process.wait(LIMIT) == 0, told
    found: dict[str, Any] = torch.load(folder / f"{group}.pt")
    return found


def raise_unless_equal(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert (
            torch.equal(value, other[name])
            if isinstance(value, Tensor)
            else (value == other[name])
        ), name


def test_two_groups_are_one_run(tmp_path: Path) -> None:
    with groups(tmp_path, least=2) as start:
        started = [start(group, "steps", "6") for group in (0, 1)]
        one, other = (ended(tmp_path, g, process) for g, process in enumerate(started))
    assert (one["groups"], one["start"], one["step"]) == ([2] * 6, 0, 6)
    assert (one["experiment"], other["experiment"]) == ("run-replica0", "run-replica1")
    raise_unless_equal(one["state"], other["state"])

    class Alone(replica_group.Trainer):
        def configure_dataloaders(self) -> Any:
            pairs = zip(batches(6, seed=0), batches(6, seed=1), strict=True)
            return [joined(pair) for pair in pairs], None

    device = DeviceParameters.FSDP(dp_shard=1, force_fsdp=True, **FLOAT32)
    alone = Alone(config(device, [EMACallback(decay=0.5)]))
    alone.fit()
    for name, value in replica_group.whole_state(alone).items():
        torch.testing.assert_close(one["state"][name], value, rtol=0, atol=1e-6, msg=name)


def test_one_dies_and_comes_back(tmp_path: Path) -> None:
    with groups(tmp_path, least=1) as start:
        survivor, victim = start(0, "survives"), start(1, "dies")
        assert victim.wait(LIMIT) == -9
        back = start(1, "returns")
        returned = ended(tmp_path, 1, back)
        stayed = ended(tmp_path, 0, survivor)
    counts = "".join(map(str, stayed["groups"])).lstrip("1")
    assert counts.strip("2").strip("1") == "" and "21" in counts and "12" in counts
    assert (
        "is given up: a replica group was lost in it" in (tmp_path / "0-survives.txt").read_text()
    )
    # It takes up everything, and reads its own data from where the others are in theirs.
    raise_unless_equal(stayed["state"], returned["state"])
    assert stayed["step"] == returned["step"] == returned["start"] + replica_group.TOGETHER
    assert returned["start"] > replica_group.TOGETHER
    place = returned["start"] % replica_group.BATCHES
    expected = batches(replica_group.BATCHES, seed=1)[place]
    assert torch.equal(returned["first"]["x"], expected["x"])
    told = f"takes step {returned['start']} from a peer"
    assert told in (tmp_path / "1-returns.txt").read_text()


class Manager:
    """Stands in for torchft's: notes what is asked of it."""

    made: list["Manager"] = []
    refused: set[int] = set()
    """Steps, from 1, that do not count."""

    def __init__(self, **options: Any) -> None:
        self.options, self.calls, self.step = options, list[str](), 0
        self.averaged: list[list[Tensor]] = [[]]
        Manager.made.append(self)

    def start_quorum(self) -> None:
        self.calls.append("quorum")

    def allreduce(self, tensor: Tensor) -> Any:
        self.averaged[-1].append(tensor.clone())
        tensor.mul_(0.5)
        return SimpleNamespace(wait=lambda: None)

    def should_commit(self) -> bool:
        self.calls.append("commit")
        self.averaged.append([])
        self.step += 1
        return self.step not in self.refused

    def shutdown(self, wait: bool = True) -> None:
        self.calls.append("shutdown")


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> type[Manager]:
    group = SimpleNamespace(shutdown=lambda: None)
    module = SimpleNamespace(Manager=Manager, ProcessGroupGloo=lambda timeout: group)
    monkeypatch.setitem(sys.modules, "torchft", module)
    monkeypatch.setattr(Manager, "made", [])
    monkeypatch.setattr(Manager, "refused", set())
    return Manager


def replica(cls: type[TinyTrainer] = TinyTrainer, number: int = 4, **training: Any) -> TinyTrainer:
    settings = config(callbacks=[FaultToleranceCallback()], **training)
    settings.fault_tolerance_parameters = FaultToleranceParameters(
        lighthouse_address="http://nowhere:1", replica_group=1, replica_groups=3
    )
    return cls(settings, batches(number))


class TestWiring:
    def test_what_a_step_asks_of_the_manager(self, stand_in: type[Manager]) -> None:
        replica(gradient_accumulation_steps=2).fit()
        (manager,) = stand_in.made
        assert manager.calls == ["quorum", "commit", "quorum", "commit", "shutdown"]
        assert [len(tensors) for tensors in manager.averaged] == [4, 4, 0]
        assert manager.options["replica_id"] == "dream_1"
        assert manager.options["lighthouse_addr"] == "http://nowhere:1"
        assert manager.options["max_retries"] == 3 and manager.options["min_replica_size"] == 1

    def test_a_refused_step_changes_nothing(self, stand_in: type[Manager]) -> None:
        class Weights(Callback):
            def __init__(self) -> None:
                self.seen: list[Tensor] = []

            def pre_train_step(self, trainer: Any, batch: Batch, batch_idx: int) -> None:
                self.seen.append(trainer.model.layers[0].weight.detach().clone())

        stand_in.refused = {2}
        trainer, weights = replica(), Weights()
        trainer.config.extra_callbacks = [weights]
        trainer.fit()
        one, two, three, four = weights.seen
        assert torch.equal(two, three)
        assert not torch.equal(one, two) and not torch.equal(three, four)
        assert trainer.global_step == 4

    def test_groups_average_what_is_scaled_already(self, stand_in: type[Manager]) -> None:
        class Sums(TinyTrainer):
            def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
                loss = F.mse_loss(self.model(batch["x"]), batch["y"], reduction="sum")
                self.backward(loss, num_items=batch["y"].numel())
                return {"train/grad_norm": self.step(self.optimizer)}

        replica(Sums, number=1).fit()
        sums = stand_in.made[0].averaged[0]
        replica(number=1).fit()
        for one, other in zip(sums, stand_in.made[1].averaged[0], strict=True):
            torch.testing.assert_close(one, other)

    def test_data_are_dealt_to_the_ranks_of_all_groups(self, stand_in: type[Manager]) -> None:
        trainer = set_up(replica())
        world = trainer.world
        assert (world.dp_rank, world.dp_size, world.loss_size) == (1, 3, 1)
        assert torch.initial_seed() != set_up(TinyTrainer(config())).config.seed

    def test_by_default_it_comes_first(self) -> None:
        settings = config()
        trainer = TinyTrainer(settings)
        assert not any(isinstance(c, FaultToleranceCallback) for c in trainer.default_callbacks())
        settings.fault_tolerance_parameters = FaultToleranceParameters()
        assert isinstance(trainer.default_callbacks()[0], FaultToleranceCallback)
        settings.fault_tolerance_parameters = FaultToleranceParameters(enable=False)
        assert not any(isinstance(c, FaultToleranceCallback) for c in trainer.default_callbacks())

    def test_without_parameters_it_does_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "torchft", None)
        trainer = replica()
        trainer.config.fault_tolerance_parameters = None
        trainer.fit()
        assert trainer.global_step == 4 and trainer.world.dp_size == 1


class TestRefused:
    def refusal(self, trainer: TinyTrainer) -> str:
        with pytest.raises(RunError) as caught:
            trainer.fit()
        return str(caught.value)

    def test_without_the_package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "torchft", None)
        assert self.refusal(replica()) == (
            "FaultToleranceCallback needs torchft. Install it (pip install torchft), or set "
            "fault_tolerance_parameters to None."
        )

    def test_without_a_lighthouse(
        self, stand_in: type[Manager], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("TORCHFT_LIGHTHOUSE", raising=False)
        trainer = replica()
        trainer.config.fault_tolerance_parameters = FaultToleranceParameters()
        assert self.refusal(trainer) == (
            "Replica groups find each other at a lighthouse, and none is named. Start one "
            "(torchft_lighthouse --min_replicas 1), and set lighthouse_address."
        )

    def test_a_group_that_is_not_there(
        self, stand_in: type[Manager], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("REPLICA_GROUP_ID", "3")
        monkeypatch.setenv("NUM_REPLICA_GROUPS", "2")
        trainer = replica()
        trainer.config.fault_tolerance_parameters = FaultToleranceParameters()
        assert self.refusal(trainer) == (
            "There is no replica group 3 among 2. Set replica_groups (or NUM_REPLICA_GROUPS) to "
            "the number of jobs."
        )

    def test_two_optimizers(self, stand_in: type[Manager]) -> None:
        class Two(TinyTrainer):
            def configure_optimizers(self) -> Any:
                first, second = self.model.layers
                self.one = torch.optim.SGD(first.parameters())
                self.other = torch.optim.SGD(second.parameters())
                return {self.model: self.one}

        assert self.refusal(replica(Two)) == (
            "A step with 2 optimizers could count for one and not for the other. Use one "
            "optimizer, or leave FaultToleranceCallback out."
        )

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            (
                {"lighthouse_address": "node0:29510"},
                "lighthouse_address='node0:29510' is not possible. Use the address that "
                "torchft_lighthouse prints, http://HOST:PORT, or None.",
            ),
            (
                {"replica_group": -1},
                "replica_group=-1 is not possible. Use a whole number from 0, or None.",
            ),
            (
                {"replica_groups": 0},
                "replica_groups=0 is not possible. Use a whole number from 1, or None.",
            ),
            (
                {"min_replica_size": 0},
                "min_replica_size=0 is not possible. Use a whole number from 1.",
            ),
            (
                {"max_consecutive_failures": -1},
                "max_consecutive_failures=-1 is not possible. Use a whole number from 0.",
            ),
            (
                {"timeout_seconds": 0},
                "timeout_seconds=0 is not possible. Use a whole number from 1.",
            ),
            (
                {"min_replica_size": 3, "replica_groups": 2},
                "min_replica_size=3 of replica_groups=2 can never take part. Lower "
                "min_replica_size.",
            ),
        ],
    )
    def test_parameters(self, arguments: dict[str, Any], text: str) -> None:
        with pytest.raises(ConfigError) as caught:
            FaultToleranceParameters(**arguments)
        assert str(caught.value) == text and caught.value.code == "DT114"
