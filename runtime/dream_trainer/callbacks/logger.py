"""The log of a run: a line on the terminal and a line of JSON, every few steps."""

import dataclasses
import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ..metrics import Mean
from .callback import Callback

if TYPE_CHECKING:
    from ..trainer import DreamTrainer


class LoggerCallback(Callback):
    """Reports what `training_step` and `validation_step` return.

    Motive: a run must leave a record without any service. `runs/<experiment>/log.jsonl`
    holds one object a line, each flushed when written; a resumed run appends. Values of
    one optimizer step are averaged over its batches and over the data ranks.
    """

    logs = True

    def __init__(self) -> None:
        self.file: TextIO | None = None
        self.window: Mean | None = None
        self.items = 0
        self.since = time.perf_counter()

    def post_setup(self, trainer: "DreamTrainer") -> None:
        parameters = trainer.config.logging_parameters
        if trainer.world.is_rank_zero and parameters.enabled:
            folder = Path(parameters.root_dir) / trainer.experiment
            folder.mkdir(parents=True, exist_ok=True)
            self.file = (folder / "log.jsonl").open("a")
            self._write(
                {
                    "event": "start",
                    "time": time.time(),
                    "experiment": trainer.experiment,
                    "world_size": trainer.world.world_size,
                    "axes": trainer.world.axes.sizes,
                    "config": describe(trainer.config),
                }
            )

    def pre_fit(self, trainer: "DreamTrainer") -> None:
        if trainer.start_step:
            self._write({"event": "resume", "time": time.time(), "step": trainer.start_step})
        if trainer.world.is_rank_zero:
            print(summary(trainer), flush=True)

    def pre_train_epoch(self, trainer: "DreamTrainer") -> None:
        self._restart_clock()

    def post_train_step(
        self, trainer: "DreamTrainer", result: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        self.items += trainer.count_items(batch)
        if not trainer.is_logging_step:
            return
        self.window = self.window or Mean(trainer.world)
        self.window.add(result)
        if trainer.is_accumulating_gradients:
            return
        values = self.window.reduce()  # Reads from the device: the clock is right after it.
        values |= self._throughput(trainer)
        self.window = None
        self._report(trainer, values)
        self._restart_clock()

    def post_train_epoch(self, trainer: "DreamTrainer") -> None:
        if trainer.world.is_rank_zero:
            print(f"epoch {trainer.epoch + 1} ended {trainer.epoch_ended}", flush=True)

    def post_validation_epoch(self, trainer: "DreamTrainer", result: dict[str, float]) -> None:
        if not trainer.is_sanity_check:  # Too few batches to be compared with later ones.
            self._report(trainer, result)
        self._restart_clock()

    def post_fit(self, trainer: "DreamTrainer") -> None:
        self._end("end")

    def on_interrupt(self, trainer: "DreamTrainer") -> None:
        self._end("interrupt")

    def _end(self, event: str) -> None:
        if self.file is not None:
            self._write({"event": event, "time": time.time()})
            self.file.close()
            self.file = None

    def _throughput(self, trainer: "DreamTrainer") -> dict[str, float]:
        seconds = time.perf_counter() - self.since
        items = self.items * trainer.world.dp_size
        return {f"perf/{trainer.item}_per_second": items / seconds} if self.items else {}

    def _restart_clock(self) -> None:
        self.items = 0
        self.since = time.perf_counter()

    def _report(self, trainer: "DreamTrainer", values: dict[str, float]) -> None:
        trainer.logged |= values
        if not trainer.world.is_rank_zero or not values:
            return
        shown = "  ".join(f"{name} {_short(value)}" for name, value in values.items())
        steps = trainer.expected_steps
        total = f"/{steps}" if steps else ""
        print(f"step {trainer.global_step:>{len(str(steps or 0))}}{total}  {shown}", flush=True)
        if self.file is not None:
            place = {"step": trainer.global_step, "epoch": trainer.epoch, "time": time.time()}
            finite = {k: v if math.isfinite(v) else None for k, v in values.items()}
            self._write(place | finite)

    def _write(self, record: dict[str, Any]) -> None:
        if self.file is not None:
            self.file.write(json.dumps(record) + "\n")
            self.file.flush()


def summary(trainer: "DreamTrainer") -> str:
    """One line on what runs where: name, processes, mesh, size, log."""
    world = trainer.world
    count = sum(p.numel() for model in trainer.named_models().values() for p in model.parameters())
    processes = "1 process" if world.world_size == 1 else f"{world.world_size} processes"
    logging = trainer.config.logging_parameters
    log = f", log in {logging.root_dir}/{trainer.experiment}/" if logging.enabled else ""
    return (
        f"run {trainer.experiment}: {processes} on {world.device.type}, mesh {world.axes}, "
        f"{count:,} parameters{' in the stages of rank 0' if world.axes.pp > 1 else ''}{log}"
    )


def describe(value: Any) -> Any:
    """A configuration as JSON can hold it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: describe(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): describe(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [describe(item) for item in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return str(value) if isinstance(value, Path) else type(value).__name__


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
