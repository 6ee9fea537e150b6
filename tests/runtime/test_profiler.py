"""The trace holds the steps that were asked for, and names their parts."""

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dream_trainer.callbacks.profiler import ProfileCallback
from tests.runtime.tiny import TinyTrainer, batches, config


def run(callback: ProfileCallback, **training: Any) -> TinyTrainer:
    trainer = TinyTrainer(config(callbacks=[callback], **({"n_epochs": 9} | training)), batches(5))
    trainer.fit()
    return trainer


def events(path: Path) -> list[dict[str, Any]]:
    """What Perfetto draws as bars."""
    with gzip.open(path, "rt") as file:
        trace = json.load(file)
    return [event for event in trace["traceEvents"] if event.get("ph") == "X"]


def spans(path: Path, name: str) -> list[tuple[float, float]]:
    found = [e for e in events(path) if e["name"].partition("#")[0] == name]
    return sorted((event["ts"], event["ts"] + event["dur"]) for event in found)


def inside(inner: tuple[float, float], outer: tuple[float, float]) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def test_steps_and_their_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    callback = ProfileCallback(skip=2, warmup=1, cycle=3, output_dir=tmp_path, stop=True)
    trainer = run(callback)
    assert trainer.global_step == 2 + 1 + 3
    assert callback.paths == [tmp_path / "rank0.json.gz"]
    (path,) = callback.paths
    told = capsys.readouterr().out
    assert told == f"profile: {path}, open it in https://ui.perfetto.dev\n"
    steps = spans(path, "ProfilerStep")
    assert len(steps) == 3
    for kind in ("forward", "backward", "optimizer"):
        own = spans(path, kind)
        assert len(own) == 3
        assert all(map(inside, own, steps))
    forward, backward = spans(path, "forward"), spans(path, "backward")
    assert all(one[1] <= other[0] for one, other in zip(forward, backward, strict=True))
    products = spans(path, "aten::addmm")
    assert len(products) == 3 * 2
    assert all(any(inside(product, span) for span in forward) for product in products)
    made = spans(path, "autograd::engine::evaluate_function: AddmmBackward0")
    assert len(made) == 3 * 2
    assert all(any(inside(one, span) for span in backward) for one in made)
    updates = spans(path, "Optimizer.step")
    assert len(updates) == 3 and all(map(inside, updates, spans(path, "optimizer")))


def test_steps_are_those_of_the_optimizer(tmp_path: Path) -> None:
    callback = ProfileCallback(skip=0, warmup=1, cycle=1, output_dir=tmp_path)
    run(callback, n_epochs=1, gradient_accumulation_steps=2)
    (path,) = callback.paths
    assert len(spans(path, "ProfilerStep")) == 1
    assert len(spans(path, "forward")) == len(spans(path, "backward")) == 2


def test_several_traces_and_training_goes_on(tmp_path: Path) -> None:
    callback = ProfileCallback(skip=1, warmup=1, cycle=1, repeat=2, output_dir=tmp_path)
    trainer = run(callback)
    assert trainer.global_step == 45
    assert [path.name for path in callback.paths] == ["rank0.json.gz", "rank0-2.json.gz"]
    assert all(len(spans(path, "ProfilerStep")) == 1 for path in callback.paths)
    assert not {"training_step", "backward", "step"} & set(vars(trainer))


def test_with_stack_there_are_lines_of_python(tmp_path: Path) -> None:
    for with_stack in (False, True):
        callback = ProfileCallback(0, 1, 1, with_stack=with_stack, output_dir=tmp_path, stop=True)
        run(callback)
        named = [e for e in events(callback.paths[0]) if "tiny.py" in e["name"]]
        assert bool(named) is with_stack


def test_by_default_in_the_folder_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    callback = ProfileCallback(skip=0, cycle=1, stop=True)
    trainer = run(callback)
    assert callback.paths == [Path("runs") / trainer.experiment / "profile" / "rank0.json.gz"]
    assert callback.paths[0].exists()


def test_a_run_that_fails_keeps_its_trace(tmp_path: Path) -> None:
    class Fails(TinyTrainer):
        def training_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
            if batch_idx == 3:
                raise ZeroDivisionError
            return super().training_step(batch, batch_idx)

    callback = ProfileCallback(skip=0, warmup=1, cycle=4, output_dir=tmp_path)
    with pytest.raises(ZeroDivisionError):
        Fails(config(callbacks=[callback]), batches(5)).fit()
    assert len(spans(callback.paths[0], "backward")) == 2


def test_too_short_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    callback = ProfileCallback(output_dir=tmp_path)
    run(callback, n_epochs=1)
    assert callback.paths == []
    assert capsys.readouterr().out == (
        "profile: the run ended 5 steps too early for a trace. Train on more data, or skip less.\n"
    )


def test_memory_is_recorded_on_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first step that counts until the trace is written."""
    calls: list[Any] = []
    memory = torch.cuda.memory
    monkeypatch.setattr(memory, "_record_memory_history", lambda **how: calls.append(how))
    monkeypatch.setattr(memory, "_dump_snapshot", calls.append)
    callback = ProfileCallback(skip=2, warmup=0, cycle=1, output_dir=tmp_path)
    callback.is_cuda = True
    for left in (3, 2, 1, 0):
        callback.left = left
        callback._record_memory()
    assert calls == [{"max_entries": 100_000}]
    callback.folder = tmp_path
    trainer: Any = SimpleNamespace(world=SimpleNamespace(rank=3, is_rank_zero=False))
    callback._write(trainer, SimpleNamespace(export_chrome_trace=calls.append))  # type: ignore[arg-type]
    names = ["rank3.json.gz", "rank3-memory.pickle"]
    assert calls[1:] == [str(tmp_path / name) for name in names]
    assert [path.name for path in callback.paths] == names


def test_no_trace_is_refused() -> None:
    with pytest.raises(ValueError) as raised:
        ProfileCallback(cycle=0)
    assert str(raised.value) == (
        "skip=5, warmup=1, cycle=0, repeat=1 give no trace. cycle and repeat must be at least 1, "
        "none of them negative."
    )
