"""The parts of a step are timed apart; throughput, FLOPs and the share of the peak follow."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dream_trainer.callbacks import Callback
from dream_trainer.callbacks import benchmark as benchmark_module
from dream_trainer.callbacks.benchmark import ROWS, BenchmarkCallback, peak_tflops
from dream_trainer.configs import DeviceParameters
from tests.runtime.tiny import Batch, TinyTrainer, batches, config, single

LOADS, FORWARD, BACKWARD, OPTIMIZER, OTHER, VALIDATES = 0.012, 0.018, 0.024, 0.03, 0.006, 0.1
LINEAR_FLOPS = 2 * 4 * 4 + 2 * 4 * 2
"""Of one row in `tiny.Model`'s forward."""

TRAINING_FLOPS = LINEAR_FLOPS + 2 * 4 * 4 + 2 * (2 * 4 * 2)
"""Backward makes both gradients of the second layer; the first one's input needs none."""


class Clock:
    """Stands still but for `sleep`, so that a busy machine changes nothing."""

    now = 0.0

    @classmethod
    def sleep(cls, seconds: float) -> None:
        cls.now += seconds

    @classmethod
    def perf_counter(cls) -> float:
        return cls.now


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark_module, "time", Clock)


class Sleepy(TinyTrainer):
    """Every part of its step takes a time of its own."""

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        Clock.sleep(FORWARD)
        return super().training_step(batch, batch_idx)

    def backward(self, loss: torch.Tensor, num_items: Any = None) -> None:
        Clock.sleep(BACKWARD)
        super().backward(loss, num_items)

    def step(self, optimizer: torch.optim.Optimizer) -> torch.Tensor | None:
        if not self.is_accumulating_gradients:
            Clock.sleep(OPTIMIZER)
        return super().step(optimizer)

    def validation_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        Clock.sleep(VALIDATES)
        return {}


class SlowData(list[Batch]):
    def __iter__(self) -> Iterator[Batch]:
        for batch in list.__iter__(self):
            Clock.sleep(LOADS)
            yield batch


class SlowCallback(Callback):
    def post_train_step(self, trainer: Any, result: Any, batch: Any, batch_idx: int) -> None:
        Clock.sleep(OTHER)


def medians(benchmark: BenchmarkCallback) -> dict[str, float]:
    return {row: benchmark.report["seconds"][row]["median"] for row in ROWS}


def run(
    benchmark: BenchmarkCallback, trainer: type[TinyTrainer] = TinyTrainer, **training: Any
) -> TinyTrainer:
    made = trainer(config(callbacks=[benchmark], **training), batches(4))
    made.fit()
    return made


def test_every_part_has_its_row(still: None) -> None:
    benchmark = BenchmarkCallback(skip=1, window_size=2, windows=2)
    training = config(callbacks=[SlowCallback(), benchmark], n_epochs=9, val_every_n_steps=1)
    Sleepy(training, SlowData(batches(3)), batches(1)).fit()
    expected = {
        "data": LOADS,
        "forward": FORWARD,
        "backward": BACKWARD,
        "optimizer": OPTIMIZER,
        "other": OTHER,
    }
    found = medians(benchmark)
    assert found.pop("step") == pytest.approx(sum(expected.values()))
    assert found == pytest.approx(expected)


def test_a_step_of_several_batches(still: None) -> None:
    benchmark = BenchmarkCallback(skip=1, window_size=1, windows=1)
    run(benchmark, Sleepy, n_epochs=9, gradient_accumulation_steps=2)
    assert benchmark.steps[0]["items"] == 4
    found = medians(benchmark)
    assert found["forward"] == pytest.approx(2 * FORWARD)
    assert found["backward"] == pytest.approx(2 * BACKWARD)
    assert found["optimizer"] == pytest.approx(OPTIMIZER)


def test_windows_end_the_run_and_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = run(BenchmarkCallback(3, print_every=2, window_size=2, windows=5), n_epochs=9)
    assert trainer.global_step == 3 + 2 * 5
    lines = capsys.readouterr().out.splitlines()
    printed = [line.split(",")[0] for line in lines if "window" in line]
    assert printed == ["benchmark: window 2", "benchmark: window 4"]
    assert "benchmark: 10 steps on cpu, ms of a step" in lines


def test_without_windows_it_goes_on() -> None:
    benchmark = BenchmarkCallback(skip=1, window_size=2)
    trainer = run(benchmark, n_epochs=2)
    assert trainer.global_step == 8
    assert len(benchmark.steps) == 6
    assert not {"training_step", "backward", "step"} & set(vars(trainer))


def test_too_short_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    benchmark = BenchmarkCallback(skip=3, window_size=2)
    run(benchmark)
    assert capsys.readouterr().out == (
        "benchmark: the run ended after 4 steps, but skip=3 and window_size=2 need 5. "
        "Train on more data, or skip less.\n"
    )
    assert benchmark.report["steps"] == 0


def test_the_results_stay_the_same() -> None:
    def weights(*callbacks: Callback) -> list[torch.Tensor]:
        trainer = TinyTrainer(config(callbacks=callbacks), batches(6))
        trainer.fit()
        return list(trainer.model.parameters())

    pairs = zip(weights(), weights(BenchmarkCallback(2, window_size=1)), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize("skip", [1, 2])
def test_flops_are_counted(skip: int) -> None:
    benchmark = BenchmarkCallback(skip, window_size=1, windows=1)
    run(benchmark, n_epochs=9, gradient_accumulation_steps=2)
    assert benchmark.report["flops_per_step"] == TRAINING_FLOPS * 2 * 2
    assert benchmark.report["flops_from"] == "FLOPs counted by FlopCounterMode"


def test_flops_of_compiled_code() -> None:
    """Fused kernels hide theirs: the step that counts runs as it is written."""
    torch._dynamo.reset()  # Other tests may have used up its limits.
    compiled_calls: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            compiled_calls.append(trainer.global_step)
            return graph(*args)

        return run

    class Compiled(TinyTrainer):
        def apply_compile(self) -> None:
            self.model.compile(backend=backend)

    benchmark = BenchmarkCallback(2, window_size=1, windows=1)
    device = single(compile_model=True)
    trainer = Compiled(config(device=device, callbacks=[benchmark]), batches(3))
    trainer.fit()
    assert compiled_calls == [0, 2]
    assert benchmark.report["flops_per_step"] == TRAINING_FLOPS * 2


def test_flops_of_a_part_of_the_mesh() -> None:
    """Where modules are split, each process does its share of 6 * parameters * tokens."""
    benchmark = BenchmarkCallback()
    model = torch.nn.Linear(4, 2, bias=False)
    parts: dict[str, Any] = {
        "stages": [{"model": model}],
        "world": SimpleNamespace(axes=SimpleNamespace(tp=2, cp=2)),
    }
    told = benchmark._flops_per_item(SimpleNamespace(item="tokens", **parts))  # type: ignore[arg-type]
    assert told == (6 * 8 / 4, "FLOPs taken as 6 * parameters * tokens")
    told = benchmark._flops_per_item(SimpleNamespace(item="images", **parts))  # type: ignore[arg-type]
    assert told == (None, "FLOPs unknown")


class FakeEvent:
    """Tells the host's time, and refuses to be read before the device has been waited for."""

    waits = 0
    unread: set[int] = set()

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.time = Clock.perf_counter()
        self.unread.add(id(self))

    def elapsed_time(self, end: "FakeEvent") -> float:
        assert not {id(self), id(end)} & self.unread
        return 1e3 * (end.time - self.time)

    @classmethod
    def synchronize(cls) -> None:
        cls.waits += 1
        cls.unread.clear()


class OnEvents(BenchmarkCallback):
    def pre_fit(self, trainer: Any) -> None:
        super().pre_fit(trainer)
        self.device = torch.device("cuda")


def test_on_cuda_the_host_waits_once_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    reset: list[bool] = []
    FakeEvent.waits = 0
    monkeypatch.setattr(torch, "get_device_module", lambda _: SimpleNamespace(Event=FakeEvent))
    monkeypatch.setattr(torch.accelerator, "synchronize", FakeEvent.synchronize)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: reset.append(True))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 3 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100 80GB HBM3")
    benchmark = OnEvents(skip=1, window_size=3, windows=2)
    run(benchmark, Sleepy, n_epochs=9)
    assert FakeEvent.waits == 2
    assert reset == [True]
    report = benchmark.report
    assert medians(benchmark)["forward"] == pytest.approx(FORWARD)
    assert report["peak_memory_gib"] == 3
    seconds = report["seconds"]["step"]["median"]
    assert report["mfu"] == pytest.approx(TRAINING_FLOPS * 2 / seconds / 989e12)
    assert report["per_second"] == pytest.approx(2 / seconds)
    assert "of 989 (bf16, dense); FLOPs counted" in benchmark.as_text()
    assert benchmark.as_text().endswith("3.00 GiB of device memory at the most")


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H200", 989),
        ("NVIDIA B200", 2250),
        ("NVIDIA GB200", None),
        ("NVIDIA H20", None),
        ("AMD Instinct MI300X", 1307),
        ("NVIDIA GeForce RTX 4090", 165.2),
        ("NVIDIA GeForce RTX 4090 D", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("cpu", None),
    ],
)
def test_peaks(name: str, peak: float | None) -> None:
    assert peak_tflops(name) == peak


def test_all_and_each(fake_world: Any) -> None:
    """Two data ranks work on four batches together."""
    with fake_world(0, 2):
        benchmark = BenchmarkCallback(skip=1, window_size=1, windows=1)
        device = DeviceParameters.FSDP(compile_model=False, param_dtype="float32")
        training = config(device=device, callbacks=[benchmark], startup_checks=False)
        TinyTrainer(training, batches(2)).fit()
    report = benchmark.report
    assert report["per_second"] == pytest.approx(2 * 2 / report["seconds"]["step"]["median"])
    assert report["per_second_per_process"] == report["per_second"] / 2


def test_nothing_to_skip_is_refused() -> None:
    with pytest.raises(ValueError) as raised:
        BenchmarkCallback(skip=0)
    assert str(raised.value) == (
        "skip=0, print_every=1 and window_size=4 must be at least 1: the last step that is "
        "skipped counts FLOPs."
    )
