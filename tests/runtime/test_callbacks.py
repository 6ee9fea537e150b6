"""Callbacks: which events come when, how they are found, and what the logger writes."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F

from dream_trainer.callbacks import (
    Callback,
    CallbackCollection,
    LoggerCallback,
    RankZeroCallback,
)
from dream_trainer.callbacks.callback import EVENTS, Events
from dream_trainer.callbacks.logger import describe
from dream_trainer.checks.alone import FirstCallAlone
from dream_trainer.configs import DeviceParameters, LoggingParameters, RunError
from tests.runtime.tiny import Batch, TinyTrainer, batches, config, joined, set_up

STEP = [
    "pre_train_step",
    "pre_optimizer_step",
    "post_optimizer_step",
    "pre_optimizer_zero_grad",
    "post_optimizer_zero_grad",
    "post_train_step",
]
INSIDE_WINDOW = ["pre_train_step", "post_train_step"]
SET_UP = [
    "pre_configure",
    "post_configure_models",
    "post_configure",
    "pre_setup",
    "post_setup",
]


def validation(batches: int) -> list[str]:
    return [
        "pre_validation_epoch",
        "enter validation_context",
        *(["pre_validation_step", "post_validation_step"] * batches),
        "leave validation_context",
        "post_validation_epoch",
    ]


class Recorder(Callback):
    """Notes every event, in order."""

    def __init__(self) -> None:
        self.events: list[str] = []


def _noted(event: str) -> Any:
    def handler(self: Recorder, *args: Any) -> Any:
        self.events.append(event)

    @contextlib.contextmanager
    def context(self: Recorder, trainer: Any) -> Iterator[None]:
        self.events.append(f"enter {event}")
        yield
        self.events.append(f"leave {event}")

    return context if event.endswith("context") else handler


for _event in EVENTS:
    setattr(Recorder, _event, _noted(_event))


def recorded(*callbacks: Callback, number: int = 2, val: int = 1, **training: Any) -> list[str]:
    recorder = Recorder()
    held_out = batches(val, seed=1) if val else None
    TinyTrainer(
        config(callbacks=[recorder, *callbacks], **training), batches(number), held_out
    ).fit()
    return recorder.events


class TestEvents:
    def test_names(self) -> None:
        pairs = [
            "configure",
            "setup",
            "fit",
            "epoch",
            "train_epoch",
            "train_step",
            "validation_epoch",
            "validation_step",
            "optimizer_step",
            "optimizer_zero_grad",
        ]
        expected = {f"{when}_{what}" for when in ("pre", "post") for what in pairs}
        others = {
            "pre_launch",
            "post_configure_models",
            "on_boundary",
            "on_interrupt",
            "train_context",
            "validation_context",
        }
        assert set(EVENTS) == expected | others
        own = {name for name in vars(Callback) if name[0] != "_"}
        assert set(EVENTS) == own - {"logs", "state_dict", "load_state_dict"}

    def test_a_whole_run(self) -> None:
        assert recorded(n_epochs=2, num_sanity_val_steps=1, val=2) == [
            *SET_UP,
            "pre_fit",
            *validation(1),
            *2
            * [
                "pre_epoch",
                "pre_train_epoch",
                "enter train_context",
                *STEP,
                "on_boundary",
                *STEP,
                "leave train_context",
                "post_train_epoch",
                *validation(2),
                "post_epoch",
                "on_boundary",
            ],
            "post_fit",
        ]

    def test_accumulation_and_validation_inside_an_epoch(self) -> None:
        events = recorded(number=3, gradient_accumulation_steps=2, val_every_n_steps=1)
        assert events[len(SET_UP) :] == [
            "pre_fit",
            "pre_epoch",
            "pre_train_epoch",
            "enter train_context",
            *INSIDE_WINDOW,
            *STEP,
            *validation(1),
            "on_boundary",
            *STEP,
            *validation(1),
            "leave train_context",
            "post_train_epoch",
            "post_epoch",
            "on_boundary",
            "post_fit",
        ]

    def test_callbacks_take_turns_in_their_order(self) -> None:
        order: list[str] = []

        class First(Callback):
            def pre_train_step(self, trainer: Any, batch: Any, batch_idx: int) -> None:
                order.append(type(self).__name__)

        class Second(First):
            pass

        recorded(Second(), First(), number=2)
        assert order == ["Second", "First", "Second", "First"]

    def test_contexts_nest_and_close_on_failure(self) -> None:
        order: list[str] = []

        class Context(Callback):
            def __init__(self, name: str) -> None:
                self.name = name

            @contextlib.contextmanager
            def train_context(self, trainer: Any) -> Iterator[None]:
                order.append(f"enter {self.name}")
                try:
                    yield
                finally:
                    order.append(f"leave {self.name}")

        class Fails(TinyTrainer):
            def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
                order.append("step")
                raise ZeroDivisionError

        trainer = Fails(config(callbacks=[Context("a"), Context("b")]), batches(1))
        with pytest.raises(ZeroDivisionError):
            trainer.fit()
        assert order == ["enter a", "enter b", "step", "leave b", "leave a"]

    def test_what_they_are_told(self) -> None:
        told: dict[str, Any] = {}

        class Looks(Callback):
            def post_train_step(
                self, trainer: Any, result: Any, batch: Any, batch_idx: int
            ) -> None:
                told["step"] = (set(result), set(batch), batch_idx, trainer.global_step)

            def pre_optimizer_step(self, trainer: Any, optimizer: Any) -> None:
                told["before"] = all(p.grad is not None for p in trainer.model.parameters())
                told["optimizer"] = optimizer is trainer.optimizer

            def post_optimizer_zero_grad(self, trainer: Any, optimizer: Any) -> None:
                told["after"] = all(p.grad is None for p in trainer.model.parameters())

            def post_validation_epoch(self, trainer: Any, result: dict[str, float]) -> None:
                told["validation"] = {name: type(value) for name, value in result.items()}

            def post_configure(self, trainer: Any) -> None:
                told["real"] = not any(p.is_meta for p in trainer.model.parameters())

            def pre_configure(self, trainer: Any) -> None:
                told["world"] = trainer.world.dp_size

        recorded(Looks(), number=2)
        assert told == {
            "step": ({"train/loss", "train/grad_norm"}, {"x", "y"}, 1, 2),
            "before": True,
            "optimizer": True,
            "after": True,
            "validation": {"val/loss": float},
            "real": True,
            "world": 1,
        }


class TestResolution:
    class Steps(Callback):
        def pre_train_step(self, trainer: Any, batch: Any, batch_idx: int) -> None: ...

    class Zero(RankZeroCallback):
        def pre_fit(self, trainer: Any) -> None: ...

    class Child(Steps):
        def post_fit(self, trainer: Any) -> None: ...

    def test_only_overrides(self) -> None:
        plain, steps, child = Callback(), self.Steps(), self.Child()
        events = Events([plain, steps, child], rank=0)
        assert events.pre_train_step == (steps.pre_train_step, child.pre_train_step)
        assert events.post_fit == (child.post_fit,)
        others = set(EVENTS) - {"pre_train_step", "post_fit"}
        assert all(getattr(events, event) == () for event in others)

    def test_rank_zero(self) -> None:
        zero = self.Zero()
        (handler,) = Events([zero], rank=0).pre_fit
        assert isinstance(handler, FirstCallAlone) and handler.handler == zero.pre_fit
        assert Events([zero], rank=1).pre_fit == ()
        steps = self.Steps()
        assert Events([zero, steps], rank=7).pre_train_step == (steps.pre_train_step,)

    def test_a_collective_on_rank_zero_alone_is_refused(self, fake_world: Any) -> None:
        class Saves(RankZeroCallback):
            def pre_fit(self, trainer: Any) -> None:
                dcp.save({"x": torch.ones(2)}, checkpoint_id="nowhere")

        class Sums(RankZeroCallback):
            def pre_fit(self, trainer: Any) -> None:
                dist.all_reduce(torch.ones(2))

        class Adds(RankZeroCallback):
            def pre_fit(self, trainer: Any) -> None:
                torch.ones(2).add_(1)

        with fake_world(0, 2):
            for callback in (Saves(), Sums()):
                (handler,) = Events([callback], rank=0).pre_fit
                with pytest.raises(RunError, match=r"runs on rank 0 alone, but calls c10d\."):
                    handler(None)
            (handler,) = Events([Adds()], rank=0).pre_fit
            handler(None)

    def test_rank_zero_in_a_world(self, fake_world: Any) -> None:
        for rank in range(2):
            with fake_world(rank, 2):
                parameters = DeviceParameters.DDP(param_dtype="float32", compile_model=False)
                trainer = set_up(TinyTrainer(config(parameters, [self.Zero(), self.Steps()])))
                assert len(trainer.events.pre_fit) == (rank == 0)
                assert len(trainer.events.pre_train_step) == 1

    def test_resolved_once(self) -> None:
        looked_up: list[str] = []

        class Watched(Callback):
            def __getattribute__(self, name: str) -> Any:
                if name == "pre_train_step":
                    looked_up.append(name)
                return super().__getattribute__(name)

            def pre_train_step(self, trainer: Any, batch: Any, batch_idx: int) -> None: ...

        TinyTrainer(config(callbacks=[Watched()]), batches(5)).fit()
        assert len(looked_up) == 1

    def test_no_such_event(self) -> None:
        with pytest.raises(AttributeError) as caught:
            _ = Events([], rank=0).pre_train_stop
        assert str(caught.value) == "There is no event 'pre_train_stop'."


class TestCollection:
    class A(Callback):
        pass

    class B(A):
        pass

    class C(Callback):
        pass

    def test_empty(self) -> None:
        empty = CallbackCollection()
        assert len(empty) == 0 and list(empty) == [] and "A" not in empty
        with pytest.raises(KeyError) as caught:
            empty["A"]
        assert caught.value.args == ("No callback is called 'A'; there are: none.",)

    def test_lookup(self) -> None:
        a, b = self.A(), self.B()
        collection = CallbackCollection([b, a])
        assert list(collection) == [b, a] and len(collection) == 2
        assert collection["A"] is a and collection["B"] is b
        assert collection[self.B] is b
        assert collection[self.A] is b  # a B is an A
        assert "A" in collection and self.A in collection and Callback in collection
        assert "C" not in collection and self.C not in collection and 3 not in collection

    def test_append_and_pop(self) -> None:
        a, b, c = self.A(), self.B(), self.C()
        source = [a]
        collection = CallbackCollection(source)
        collection.append(b)
        collection.append(c)
        assert source == [a]
        assert collection.pop("B") is b
        assert collection.pop(self.C) is c
        assert list(collection) == [a]

    def test_errors_name_what_there_is(self) -> None:
        collection = CallbackCollection([self.A(), self.B()])
        for key in ("Missing", self.C):
            for ask in (collection.__getitem__, collection.pop):
                with pytest.raises(KeyError) as caught:
                    ask(key)
                text = f"No callback is called {key!r}; there are: A, B."
                assert caught.value.args == (text,)
        assert len(collection) == 2

    def test_a_trainers_collection(self) -> None:
        logger = LoggerCallback()
        trainer = TinyTrainer(config(callbacks=[logger]), batches(1))
        trainer.fit()
        assert trainer.callbacks["LoggerCallback"] is logger

    def test_defaults(self) -> None:
        changed = config()
        changed.callbacks = None
        trainer = TinyTrainer(changed, batches(1))
        trainer.fit()
        assert [type(callback).__name__ for callback in trainer.callbacks] == [
            "ProgressBar",
            "MetricLoggerCallback",
            "LRLoggerCallback",
            "LoggerCallback",
        ]


class TestInterrupt:
    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, RunError])
    @pytest.mark.parametrize(
        "where", ["configure_models", "init_weights", "training_step", "validation_step"]
    )
    def test_fires_and_passes_the_error_on(self, where: str, error: type[BaseException]) -> None:
        def fail(self: Any, *args: Any) -> Any:
            raise error("stop")

        recorder = Recorder()
        trainer = type("Fails", (TinyTrainer,), {where: fail})
        with pytest.raises(error, match="stop"):
            trainer(config(callbacks=[recorder]), batches(2), batches(1)).fit()
        assert recorder.events.count("on_interrupt") == 1
        assert recorder.events[-1] == "on_interrupt"
        assert "post_fit" not in recorder.events

    def test_not_on_a_good_end(self) -> None:
        assert "on_interrupt" not in recorded()

    @pytest.mark.parametrize(
        "where", ["configure_models", "init_weights", "configure_dataloaders"]
    )
    def test_the_default_callbacks_do_not_hide_an_early_error(
        self, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(self: Any, *args: Any) -> Any:
            raise ZeroDivisionError("the users own")

        monkeypatch.chdir(tmp_path)
        changed = config()
        changed.callbacks = None
        trainer = type("Fails", (TinyTrainer,), {where: fail})
        with pytest.raises(ZeroDivisionError, match="the users own"):
            trainer(changed, batches(1)).fit()

    def test_a_callback_that_fails_does_not_hide_the_error_nor_stop_the_others(self) -> None:
        class Broken(Callback):
            def on_interrupt(self, trainer: Any) -> None:
                raise AttributeError("a fault of the callback")

        class Fails(TinyTrainer):
            def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
                raise ZeroDivisionError("the users own")

        recorder = Recorder()
        with pytest.raises(ZeroDivisionError):
            Fails(config(callbacks=[Broken(), recorder]), batches(1)).fit()
        assert recorder.events[-1] == "on_interrupt"


def read(folder: Path) -> list[dict[str, Any]]:
    (log,) = folder.glob("*/log.jsonl")
    return [json.loads(line, parse_constant=forbid) for line in log.read_text().splitlines()]


def forbid(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


class TestLogger:
    def run(
        self,
        folder: Path,
        trainer: type[TinyTrainer] = TinyTrainer,
        data: Any = None,
        every: int = 1,
        **training: Any,
    ) -> TinyTrainer:
        logging = LoggingParameters(root_dir=str(folder), log_every_n_steps=every)
        made = config(callbacks=[LoggerCallback()], logging=logging, **training)
        made.experiment = "run"
        made_trainer = trainer(made, batches(3) if data is None else data, batches(1, seed=1))
        made_trainer.fit()
        return made_trainer

    def test_records(self, tmp_path: Path) -> None:
        self.run(tmp_path, n_epochs=2)
        start, *middle, end = read(tmp_path)
        assert {key: start[key] for key in ("event", "experiment", "world_size", "axes")} == {
            "event": "start",
            "experiment": "run",
            "world_size": 1,
            "axes": {"pp": 1, "dp_replicate": 1, "dp_shard": 1, "cp": 1, "tp": 1},
        }
        assert start["config"]["training_parameters"]["n_epochs"] == 2
        assert start["config"]["device_parameters"]["param_dtype"] == "float32"
        assert set(end) == {"event", "time"} and end["event"] == "end"
        train, val = {"train/loss", "train/grad_norm"}, {"val/loss"}
        shown = [
            (r["step"], r["epoch"], {key for key in r if key.startswith(("train/", "val/"))})
            for r in middle
        ]
        assert shown == [
            *((step, 0, train) for step in (1, 2, 3)),
            (3, 0, val),
            *((step, 1, train) for step in (4, 5, 6)),
            (6, 1, val),
        ]
        times = [record["time"] for record in read(tmp_path)]
        assert times == sorted(times)
        assert all(r["perf/samples_per_second"] > 0 for r in middle if "train/loss" in r)

    def test_every_n_steps_and_the_last(self, tmp_path: Path) -> None:
        self.run(tmp_path, every=3, data=batches(8))
        assert [r["step"] for r in read(tmp_path) if "train/loss" in r] == [1, 3, 6, 8]

    def test_values(self, tmp_path: Path) -> None:
        data = batches(1)
        trainer = self.run(tmp_path, data=data)
        start = set_up(TinyTrainer(config())).model
        loss = F.mse_loss(start(data[0]["x"]), data[0]["y"])
        (record,) = [r for r in read(tmp_path) if "train/loss" in r]
        assert record["train/loss"] == pytest.approx(loss.item(), rel=1e-6)
        assert trainer.logged["train/loss"] == record["train/loss"]

    def test_a_window_is_logged_as_one_batch(self, tmp_path: Path) -> None:
        data = batches(5)
        self.run(tmp_path / "parts", data=data, gradient_accumulation_steps=2)
        whole = [joined(data[i : i + 2]) for i in range(0, 5, 2)]
        self.run(tmp_path / "whole", data=whole)
        for name in ("train/loss", "train/grad_norm"):
            parts, big = (
                [r[name] for r in read(tmp_path / folder) if name in r]
                for folder in ("parts", "whole")
            )
            assert parts == pytest.approx(big, rel=1e-5)

    def test_only_logged_windows_are_averaged(self, tmp_path: Path) -> None:
        class Numbers(TinyTrainer):
            def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
                super().training_step(batch, batch_idx)
                return {"index": float(batch_idx), "rare": None}

        self.run(tmp_path, Numbers, batches(8), every=2, gradient_accumulation_steps=2)
        found = [(r["step"], r["index"]) for r in read(tmp_path) if "index" in r]
        assert found == [(1, 0.5), (2, 2.5), (4, 6.5)]
        assert all("rare" not in record for record in read(tmp_path))

    def test_a_resumed_run_appends(self, tmp_path: Path) -> None:
        self.run(tmp_path)
        first = read(tmp_path)
        self.run(tmp_path)
        assert read(tmp_path)[: len(first)] == first
        assert [r["event"] for r in read(tmp_path) if "event" in r] == ["start", "end"] * 2

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
    def test_not_finite_is_null(self, value: float, tmp_path: Path) -> None:
        class Diverges(TinyTrainer):
            def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
                super().training_step(batch, batch_idx)
                return {"odd": value, "fine": 1.0}

        self.run(tmp_path, Diverges)
        records = [r for r in read(tmp_path) if "fine" in r]
        assert [(r["odd"], r["fine"]) for r in records] == [(None, 1.0)] * 3

    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
    def test_an_interrupted_run_says_so(self, error: type[BaseException], tmp_path: Path) -> None:
        class Fails(TinyTrainer):
            def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
                if batch_idx == 2:
                    raise error
                return super().training_step(batch, batch_idx)

        with pytest.raises(error):
            self.run(tmp_path, Fails)
        records = read(tmp_path)
        assert [r.get("event") for r in records] == ["start", None, None, "interrupt"]

    def test_disabled_writes_nothing(self, tmp_path: Path) -> None:
        logging = LoggingParameters(enabled=False, root_dir=str(tmp_path / "runs"))
        trainer = TinyTrainer(config(callbacks=[LoggerCallback()], logging=logging), batches(2))
        trainer.fit()
        assert list(tmp_path.iterdir()) == []
        assert "train/loss" in trainer.logged

    def test_only_rank_zero_writes(self, fake_world: Any, tmp_path: Path) -> None:
        parameters = DeviceParameters.DDP(param_dtype="float32", compile_model=False)
        logging = LoggingParameters(root_dir=str(tmp_path))
        for rank, files in [(1, 0), (0, 1)]:
            with fake_world(rank, 2):
                set_up(TinyTrainer(config(parameters, [LoggerCallback()], logging)))
            assert len(list(tmp_path.glob("*/log.jsonl"))) == files

    def test_terminal(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.run(tmp_path)
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == (
            f"run run: 1 process on cpu, mesh one device, 30 parameters, log in {tmp_path}/run/"
        )
        assert [line.split("  ")[0] for line in lines[1:4]] == [f"step {n}/3" for n in (1, 2, 3)]
        assert lines[4] == "epoch 1 ended with the data, after 3 batches"
        assert lines[5].startswith("step 3/3  val/loss ")
        assert len(lines) == 6

    def test_steps_that_log_only_sometimes(self, tmp_path: Path) -> None:
        class Sometimes(TinyTrainer):
            def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
                loss = F.mse_loss(self.model(batch["x"]), batch["y"])
                self.backward(loss)
                logs = {"train/loss": loss}
                if not self.is_accumulating_gradients:
                    norm = self.step(self.optimizer)
                    logs |= {"train/grad_norm": norm} if norm is not None else {}
                return logs

        self.run(tmp_path, Sometimes, batches(4), gradient_accumulation_steps=2)
        records = [r for r in read(tmp_path) if "train/loss" in r]
        assert all("train/grad_norm" in r for r in records) and len(records) == 2


def test_describe() -> None:
    class Odd:
        pass

    value = {1: (1, 2.5), "path": Path("a/b"), "inf": float("inf"), "odd": Odd(), "none": None}
    assert describe(value) == {
        "1": [1, 2.5],
        "path": "a/b",
        "inf": "inf",
        "odd": "Odd",
        "none": None,
    }


@pytest.mark.parametrize("given", ["night-7", "lm", "lm-7b-fsdp-try-3", "2026-11-30-a-b"])
def test_experiment_is_the_launchers_run_id(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", given)
    assert set_up(TinyTrainer(config())).experiment == given


def test_experiment_of_the_configuration_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "night-7")
    named = config()
    named.experiment = "mine"
    assert set_up(TinyTrainer(named)).experiment == "mine"


def test_experiment_is_readable_and_new_each_time() -> None:
    names = {set_up(TinyTrainer(config())).experiment for _ in range(3)}
    assert len(names) == 3
    assert all(name.isascii() and "/" not in name and len(name) < 40 for name in names)


@pytest.mark.parametrize("given", ["none", "1f0e4f0e-7b8f-4d55-9a43-64b8a4f6cb0d"])
def test_what_a_launcher_makes_up_does_not_name_the_run(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", given)  # torchrun's default; --standalone
    assert set_up(TinyTrainer(config())).experiment != given
