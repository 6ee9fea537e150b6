"""Where the time of a training step goes, and how much of the device it uses."""

import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from .callback import Callback, release, surround

if TYPE_CHECKING:
    from ..trainer import DreamTrainer

PEAK_TFLOPS = {
    "A100": 312.0,
    "H100 PCIe": 756.0,
    "H100 NVL": 835.0,
    "H100": 989.0,
    "H200": 989.0,
    "B200": 2250.0,
    "MI300X": 1307.0,
    "L40S": 362.0,
    "RTX 4090": 165.2,
}
"""Part of a device's name -> dense bf16 TFLOP/s, of data sheets (NVIDIA's state twice as much,
with sparsity): nvidia.com/en-us/data-center/{a100,h100,h200,dgx-b200,l40s},
amd.com/en/products/accelerators/instinct/mi300/mi300x.html, NVIDIA's Ada whitepaper (4090)."""

ROWS = ("step", "data", "forward", "backward", "optimizer", "other")
METHODS = ("training_step", "backward", "step")


class BenchmarkCallback(Callback):
    """Times the parts of a step, its throughput and the share of the device's peak (MFU).

    Motive: what is slow is rarely what one thinks. Rows: `data`, the wait for a batch until
    `training_step` begins; `forward`, all of `training_step` that is not `self.backward` or
    `self.step` (a pipeline runs backward in it); `other`, callbacks and the loop. Validation
    is left out. On an accelerator events measure: times are the device's, `data` is how long
    it idled, and the host waits for it only at the end of a window.

    After `skip` steps, the last of them run without compilation to count FLOPs, windows of
    `window_size` steps are timed, each `print_every`-th is printed; `windows` of them end the
    run (None: they never do). `report` holds medians and spread over all steps, of rank 0.
    """

    def __init__(
        self,
        skip: int = 8,
        print_every: int = 1,
        window_size: int = 4,
        windows: int | None = None,
    ) -> None:
        if min(skip, print_every, window_size) < 1:
            raise ValueError(
                f"skip={skip}, print_every={print_every} and window_size={window_size} must be "
                "at least 1: the last step that is skipped counts FLOPs."
            )
        self.skip, self.print_every = skip, print_every
        self.window_size, self.windows = window_size, windows
        self.report: dict[str, Any] = {}
        """Seconds as {row: {"median", "p10", "p90"}}, and what else was found; at the end."""

        self.steps: list[dict[str, float]] = []
        """Of every timed step the seconds of each row, and its "items"."""

        self.marks: list[tuple[str, Any, Any]] = []
        self.window: list[tuple[list[tuple[str, Any, Any]], int]] = []
        self.items = self.done = self.counted_items = self.flops = 0

    def pre_fit(self, trainer: "DreamTrainer") -> None:
        self.device = trainer.world.device
        self.is_counting = self.skip == 1
        for method, row in zip(METHODS, ("training", "backward", "optimizer"), strict=True):
            surround(trainer, method, partial(self._timed, row))
        if trainer.world.axes.world_size == trainer.world.dp_size:
            surround(trainer, "training_step", partial(self._counted, trainer))

    def pre_train_epoch(self, trainer: "DreamTrainer") -> None:
        self.start = self._now()

    def post_train_step(
        self, trainer: "DreamTrainer", result: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        self.items += trainer.count_items(batch)
        now = self._now()
        self.marks.append(("step", self.start, now))
        self.start = now
        if trainer.is_accumulating_gradients:
            return
        self.done += 1
        if self.done > self.skip:
            self.window.append((self.marks, self.items))
        elif self.is_counting:
            self.counted_items = self.items
            if self.device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
        self.is_counting = self.done == self.skip - 1
        self.marks, self.items = [], 0
        if len(self.window) == self.window_size:
            self._close_window(trainer)

    def on_boundary(self, trainer: "DreamTrainer") -> None:
        self.start = self._now()

    def post_fit(self, trainer: "DreamTrainer") -> None:
        release(trainer, *METHODS)
        self.report = self._summary(trainer)
        if trainer.world.is_rank_zero:
            print(self.as_text(), flush=True)

    def on_interrupt(self, trainer: "DreamTrainer") -> None:
        release(trainer, *METHODS)

    def as_text(self) -> str:
        """The report as a table."""
        report = self.report
        if not report["steps"]:
            return (
                f"benchmark: the run ended after {self.done} steps, but skip={self.skip} and "
                f"window_size={self.window_size} need {self.skip + self.window_size}. "
                "Train on more data, or skip less."
            )
        lines = [f"benchmark: {report['steps']} steps on {report['device']}, ms of a step"]
        lines.append(f"{'':<12}{'median':>10}{'p10':>10}{'p90':>10}{'share':>8}")
        for row in ROWS:
            times = report["seconds"][row]
            figures = "".join(f"{1e3 * times[key]:>10.2f}" for key in ("median", "p10", "p90"))
            share = times["median"] / report["seconds"]["step"]["median"]
            lines.append(f"{row:<12}{figures}{share:>8.0%}")
        each, item = report["per_second_per_process"], report["item"]
        lines.append(f"{report['per_second']:,.0f} {item}/s, {each:,.0f} per process")
        if (flops := report["tflops_per_second"]) is not None:
            peak = report["peak_tflops"]
            share = f", {report['mfu']:.1%} of {peak:g} (bf16, dense)" if peak else ""
            lines.append(f"{flops:.3g} TFLOP/s per process{share}; {report['flops_from']}")
        if report["peak_memory_gib"] is not None:
            lines.append(f"{report['peak_memory_gib']:.2f} GiB of device memory at the most")
        return "\n".join(lines)

    @contextmanager
    def _timed(self, row: str) -> Iterator[None]:
        begin = self._now()
        if row == "training":
            self.marks.append(("data", self.start, begin))
        yield
        self.marks.append((row, begin, self._now()))

    @contextmanager
    def _counted(self, trainer: "DreamTrainer") -> Iterator[None]:
        if not self.is_counting:
            yield
            return
        with ExitStack() as contexts:
            if trainer.config.device_parameters.compile_model:  # Fused kernels hide their FLOPs.
                contexts.enter_context(torch.compiler.set_stance("force_eager"))
            counter = contexts.enter_context(FlopCounterMode(display=False))
            yield
        self.flops += counter.get_total_flops()

    def _now(self) -> Any:
        if self.device.type == "cpu":
            return time.perf_counter()
        event = torch.get_device_module(self.device).Event(enable_timing=True)
        event.record()
        return event

    def _close_window(self, trainer: "DreamTrainer") -> None:
        """Read the marks: on an accelerator the one place where the host waits."""
        if self.device.type != "cpu":
            torch.accelerator.synchronize()
        for marks, items in self.window:
            step = dict.fromkeys((*ROWS, "training"), 0.0)
            for row, begin, end in marks:
                step[row] += _seconds(begin, end)
            training = step.pop("training")
            step["forward"] = training - step["backward"] - step["optimizer"]
            step["other"] = step["step"] - step["data"] - training
            self.steps.append(step | {"items": items})
        self.window = []
        window = len(self.steps) // self.window_size
        if window % self.print_every == 0 and trainer.world.is_rank_zero:
            recent = self.steps[-self.window_size :]
            times = {row: statistics.median(step[row] for step in recent) for row in ROWS}
            parts = "  ".join(f"{row} {1e3 * times[row]:.2f}" for row in ROWS)
            print(f"benchmark: window {window}, ms: {parts}", flush=True)
        if window == self.windows:
            trainer.is_stopping = True

    def _summary(self, trainer: "DreamTrainer") -> dict[str, Any]:
        cuda = self.device.type == "cuda"
        name = torch.cuda.get_device_name() if cuda else self.device.type
        report: dict[str, Any] = {"steps": len(self.steps), "device": name, "item": trainer.item}
        if not self.steps:
            return report
        report["seconds"] = {row: _spread([step[row] for step in self.steps]) for row in ROWS}
        seconds = report["seconds"]["step"]["median"]
        items = statistics.median(step["items"] for step in self.steps)
        world = trainer.world
        report["per_second"] = items * world.dp_size / seconds
        report["per_second_per_process"] = report["per_second"] / world.axes.world_size
        flops, report["flops_from"] = self._flops_per_item(trainer)
        report["flops_per_step"] = None if flops is None else flops * items
        speed = None if flops is None else flops * items / seconds / 1e12
        peak = peak_tflops(name)
        report |= {"tflops_per_second": speed, "peak_tflops": peak}
        report["mfu"] = speed / peak if speed is not None and peak else None
        memory = torch.cuda.max_memory_allocated() / 2**30 if cuda else None
        return report | {"peak_memory_gib": memory}

    def _flops_per_item(self, trainer: "DreamTrainer") -> tuple[float | None, str]:
        """What one item of this data rank costs this process, and how that is known."""
        if self.flops and self.counted_items:
            recomputes = trainer.config.device_parameters.checkpoint_activations
            note = ", recomputation included" if recomputes else ""
            return self.flops / self.counted_items, f"FLOPs counted by FlopCounterMode{note}"
        if trainer.item != "tokens":
            return None, "FLOPs unknown"
        models = (model for stage in trainer.stages for model in stage.values())
        size = sum(p.numel() for model in models for p in model.parameters())
        split = trainer.world.axes.tp * trainer.world.axes.cp
        return 6 * size / split, "FLOPs taken as 6 * parameters * tokens"


def peak_tflops(name: str) -> float | None:
    """The peak of the device that torch calls `name`, where it is known for the whole of it."""
    if {"MIG", "Laptop", "D"} & set(name.split()):  # A part of it, or a smaller one.
        return None
    return next((peak for part, peak in PEAK_TFLOPS.items() if f" {part}" in name), None)


def _seconds(begin: Any, end: Any) -> float:
    return float(end - begin if isinstance(begin, float) else begin.elapsed_time(end) / 1e3)


def _spread(values: list[float]) -> dict[str, float]:
    """Median, and the values that a tenth of them lies below and above."""
    ordered = sorted(values)
    return {
        "median": statistics.median(ordered),
        "p10": ordered[len(ordered) // 10],
        "p90": ordered[-1 - len(ordered) // 10],
    }
