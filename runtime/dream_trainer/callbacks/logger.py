"""The log of a run: a line on the terminal and a record elsewhere, every few steps."""

import dataclasses
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..configs import RunError
from ..loggers import JsonlLogger, Logger, Run, build_trackers, raise_unless_installed
from ..metrics import Mean
from .callback import Callback

if TYPE_CHECKING:
    from ..trainer import DreamTrainer

SHOWN = 12
"""Values on a line of the terminal; the record has all of them."""


class LoggerCallback(Callback):
    """Reports what `training_step` and `validation_step` return.

    Motive: a run must leave a record without any service. `runs/<experiment>/log.jsonl`
    holds one object a line; a resumed run appends. wandb and TensorBoard get the same where
    `logging_parameters` name them; one that fails costs a warning, not the run. Values of
    one optimizer step are averaged over its batches and over the data ranks.
    """

    logs = True

    def __init__(self) -> None:
        self.loggers: list[Logger] = []
        self.failed: set[str] = set()
        self.window: Mean | None = None
        self.items = 0
        self.since = time.perf_counter()

    def pre_configure(self, trainer: "DreamTrainer") -> None:
        raise_unless_installed(trainer.config.logging_parameters)

    def post_setup(self, trainer: "DreamTrainer") -> None:
        parameters = trainer.config.logging_parameters
        self.loggers = trainer.loggers = []
        if not trainer.world.is_rank_zero or not parameters.enabled:
            return
        self.loggers.append(JsonlLogger(run_folder(trainer)))
        self._tell(
            lambda logger: logger.event(
                "start",
                experiment=trainer.experiment,
                world_size=trainer.world.world_size,
                axes=trainer.world.axes.sizes,
                config=describe(trainer.config),
            )
        )

    def pre_fit(self, trainer: "DreamTrainer") -> None:
        if trainer.start_step:
            self._tell(lambda logger: logger.event("resume", step=trainer.start_step))
        if trainer.world.is_rank_zero:
            print(summary(trainer), flush=True)
        if self.loggers:
            self._start_trackers(trainer)

    def _start_trackers(self, trainer: "DreamTrainer") -> None:
        run = Run(
            experiment=trainer.experiment,
            project=trainer.config.project,
            group=trainer.config.group,
            folder=run_folder(trainer),
            config=describe(trainer.config),
            start_step=trainer.start_step,
        )
        for tracker in build_trackers(trainer.config.logging_parameters):
            try:
                tracker.start(run)
            except RunError:
                raise
            except Exception as error:
                warn_of(tracker, error)
            else:
                self.loggers.append(tracker)

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
        self.window.add(trainer.take_also_logged())
        values = self.window.reduce()  # Reads from the device: the clock is right after it.
        values |= self._throughput(trainer)
        self.window = None
        self._report(trainer, values)
        self._restart_clock()

    def post_train_epoch(self, trainer: "DreamTrainer") -> None:
        if trainer.world.is_rank_zero:
            print(f"epoch {trainer.epoch + 1} ended {trainer.epoch_ended}", flush=True)
        mean = Mean(trainer.world)
        mean.add(trainer.take_also_logged())
        self._report(trainer, mean.reduce())

    def post_validation_epoch(self, trainer: "DreamTrainer", result: dict[str, float]) -> None:
        if not trainer.is_sanity_check:  # Too few batches to be compared with later ones.
            self._report(trainer, result)
        self._restart_clock()

    def post_fit(self, trainer: "DreamTrainer") -> None:
        self._end(trainer.exit_code, goes_on=trainer.exit_code != 0)

    def on_interrupt(self, trainer: "DreamTrainer") -> None:
        self._end(exit_code_of(sys.exc_info()[1]))

    def _end(self, exit_code: int, goes_on: bool = False) -> None:
        self._tell(lambda logger: logger.close(exit_code, goes_on))
        self.loggers.clear()

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
        first = list(values.items())[:SHOWN]
        shown = "  ".join(f"{name} {_short(value)}" for name, value in first)
        shown += f"  and {len(values) - SHOWN} more" if len(values) > SHOWN else ""
        steps = trainer.expected_steps
        total = f"/{steps}" if steps else ""
        print(f"step {trainer.global_step:>{len(str(steps or 0))}}{total}  {shown}", flush=True)
        self._tell(lambda logger: logger.log(trainer.global_step, trainer.epoch, values))

    def _tell(self, what: Callable[[Logger], None]) -> None:
        """Every logger; of one that fails it is said once, and the run goes on."""
        for logger in self.loggers:
            try:
                what(logger)
            except Exception as error:
                if logger.name not in self.failed:
                    self.failed.add(logger.name)
                    warn_of(logger, error)


def warn_of(logger: Logger, error: Exception) -> None:
    """Say that a logger lacks something from now on."""
    text = " ".join(str(error).split()) or type(error).__name__
    print(f"warning: {logger.name} lacks a part of this run: {text}", file=sys.stderr, flush=True)


def exit_code_of(error: BaseException | None) -> int:
    """What a process ends with that `error` ends."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def run_folder(trainer: "DreamTrainer") -> Path:
    """Where the run leaves what it writes."""
    return Path(trainer.config.logging_parameters.root_dir) / trainer.experiment


def summary(trainer: "DreamTrainer") -> str:
    """One line on what runs where: name, processes, mesh, size, log."""
    world = trainer.world
    count = sum(p.numel() for model in trainer.named_models().values() for p in model.parameters())
    processes = "1 process" if world.world_size == 1 else f"{world.world_size} processes"
    logging = trainer.config.logging_parameters
    log = f", log in {logging.root_dir}/{trainer.experiment}/" if logging.enabled else ""
    hosts = f" on {len(world.hosts)} hosts ({', '.join(world.hosts)})" * (len(world.hosts) > 1)
    return (
        f"run {trainer.experiment}: {processes} on {world.device.type}{hosts}, mesh {world.axes}, "
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
