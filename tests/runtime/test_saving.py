"""Saves behind the back of training, and of two ranks that do not see the same.

A file holds the state of its step, all ranks decide alike, and none waits in vain.
"""

import json
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dream_trainer.callbacks import Callback
from dream_trainer.callbacks.checkpoint import AsyncCheckpointCallback
from dream_trainer.checkpoint import writer
from dream_trainer.checkpoint.manifest import name_of
from tests.conftest import run_torchrun
from tests.runtime.resuming import Plan, crash, saving, stop
from tests.runtime.test_checkpoint_failures import PLAN, folder, steps
from tests.runtime.test_resume import tensors_of

SCRIPT = Path(__file__).with_name("failing_saves.py")

Record = dict[str, Any]


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Record]:
    """What a run recorded; all of them share a launch."""
    root = tmp_path_factory.mktemp("saving")
    done = run_torchrun(2, SCRIPT, root, cwd=root, timeout=120)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return lambda name: json.loads((root / f"{name}.json").read_text())


def alike(record: Record) -> list[int]:
    """The steps that all ranks began to save."""
    first, second = record["begun"]
    assert first == second
    return list(first)


class TestDecisions:
    """Mode 34: whether and when to save is one answer for all ranks."""

    def test_by_the_clock_of_rank_zero(self, record: Callable[[str], Record]) -> None:
        *saves, last = alike(record("clocks"))
        assert last == 20 and len(saves) >= 3
        assert all(late - early > 1 for early, late in pairwise(saves))

    def test_the_best_by_the_values_of_rank_zero(self, record: Callable[[str], Record]) -> None:
        found = record("monitor")
        assert alike(found) == [1, 2, 3, 4, 5, 6]
        assert found["kept"] == [6, 4, 3]

    def test_another_rank_loses_patience(self, record: Callable[[str], Record]) -> None:
        found = record("impatient")
        assert alike(found) == [3, 6]
        assert found["kept"] == [6, 3] and found["ended"] == [6, 6]


class TestStorage:
    @pytest.mark.parametrize("name", ["slow", "slow behind"])
    def test_too_slow(self, name: str, record: Callable[[str], Record]) -> None:
        found = record(name)
        assert found["ended"] == [6, 6] and found["raised"] == ["", ""]
        text = "warning: step 3 could not be saved, the previous checkpoint stays: "
        assert [line for line in found["told"] if line.startswith(text)]
        assert set(found["kept"]) >= {1, 2, 4, 5, 6} - ({1} if 3 in found["kept"] else set())
        assert alike(found) == [1, 2, 3, 4, 5, 6]

    def test_a_run_can_stop_over_it(self, record: Callable[[str], Record]) -> None:
        found = record("stop")
        assert found["ended"] == [3, 3]
        assert all("step 3 could not be saved" in error for error in found["raised"])
        assert found["kept"] == [2, 1]

    def test_slow_to_remove(self, record: Callable[[str], Record]) -> None:
        found = record("slow to remove")
        assert found["told"] == []
        assert alike(found) == [1, 2, 3, 4, 5, 6]

    def test_no_memory_for_the_copy(self, record: Callable[[str], Record]) -> None:
        found = record("no memory")
        assert found["kept"] == [6, 5, 4, 2, 1]
        (line,) = found["told"]
        assert "step 3 could not be saved" in line and "rank 1: MemoryError" in line


class Gate:
    """Holds the write of one checkpoint up until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
        self.opened, self.reached = threading.Event(), threading.Event()
        self.writing = self.most = 0
        original = writer.LocalWriter.write_data

        def write(own: Any, plan: Any, planner: Any) -> Any:
            self.writing += 1
            self.most = max(self.most, self.writing)
            if own.manifest.step == step:
                self.reached.set()
                self.opened.wait(20)
            try:
                return original(own, plan, planner)
            finally:
                self.writing -= 1

        monkeypatch.setattr(writer.LocalWriter, "write_data", write)


class Opens(Callback):
    """Opens the gate at a step, and remembers the weights of every one."""

    def __init__(self, gate: Gate, step: int) -> None:
        self.gate, self.step = gate, step
        self.weights: dict[int, Any] = {}

    def post_train_step(self, trainer: Any, result: Any, batch: Any, batch_idx: int) -> None:
        state = trainer.model.state_dict()
        self.weights[trainer.global_step] = {f"model.{k}": v.tolist() for k, v in state.items()}
        if trainer.global_step == self.step:
            assert self.gate.reached.wait(20)
            self.gate.opened.set()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    found = Gate(monkeypatch, step=2)
    yield found
    found.opened.set()


class TestBehindTheBack:
    def test_the_file_holds_the_weights_of_its_step(self, gate: Gate, tmp_path: Path) -> None:
        opens = Opens(gate, 4)
        plan = Plan(training=PLAN.training, callbacks=lambda: [opens])
        plan.run(saving(tmp_path, 2, keep_top_k=9), stop(5), AsyncCheckpointCallback)
        assert opens.weights[2] != opens.weights[3]
        for step in (2, 4, 5):
            held = tensors_of(folder(tmp_path) / name_of(step))
            assert {key: held[key] for key in opens.weights[step]} == opens.weights[step]

    def test_one_at_a_time_and_the_next_one_waits(self, gate: Gate, tmp_path: Path) -> None:
        plan = Plan(training=PLAN.training)
        threading.Timer(0.5, gate.opened.set).start()
        plan.run(saving(tmp_path), None, AsyncCheckpointCallback)
        assert gate.most == 1
        assert steps(tmp_path)[0] == 8

    def test_the_end_waits(self, gate: Gate, tmp_path: Path) -> None:
        threading.Timer(0.5, gate.opened.set).start()
        PLAN.run(saving(tmp_path, 100), stop(2), AsyncCheckpointCallback)
        assert steps(tmp_path) == [2]

    def test_an_exception_waits(self, gate: Gate, tmp_path: Path) -> None:
        threading.Timer(0.5, gate.opened.set).start()
        PLAN.run(saving(tmp_path, 2), crash(3), AsyncCheckpointCallback)
        assert steps(tmp_path) == [2]

    def test_a_save_that_is_given_up_never_mixes(
        self, gate: Gate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """It may still be published later: then as what it was."""
        opens = Opens(gate, 7)
        plan = Plan(training=PLAN.training, callbacks=lambda: [opens])
        parameters = saving(tmp_path, 2, keep_top_k=9, save_timeout_seconds=1)
        plan.run(parameters, None, AsyncCheckpointCallback)
        told = capsys.readouterr().err
        assert "step 2 could not be saved, the previous checkpoint stays: TimeoutError" in told
        late = threading.Event()
        while not (folder(tmp_path) / name_of(2)).exists() and not late.wait(0.05):
            assert gate.most < 9
            if not any(t.name.startswith("Thread") for t in threading.enumerate()):
                break
        for step in steps(tmp_path):
            held = tensors_of(folder(tmp_path) / name_of(step))
            assert {key: held[key] for key in opens.weights[step]} == opens.weights[step]
        assert set(steps(tmp_path)) >= {4, 6, 8}
