"""A trace of a few steps, kernel by kernel."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from .callback import Callback, release, surround

if TYPE_CHECKING:
    from ..trainer import DreamTrainer

METHODS = ("training_step", "backward", "step")
MEMORY_EVENTS = 100_000


class ProfileCallback(Callback):
    """Writes what host and device did in each of `cycle` steps, for https://ui.perfetto.dev.

    Motive: timings say which part is slow, a trace says why: gaps between kernels, waits for
    the host, collectives that overlap with nothing. After `skip` steps come `repeat` times
    `warmup` steps that are not kept and `cycle` that are. Each rank writes `rank0.json.gz` to
    `output_dir` (default: `profile` in the folder of the run), with steps, "forward" (loss
    included), "backward" and "optimizer" by name, and on CUDA `rank0-memory.pickle`, for
    https://docs.pytorch.org/memory_viz. `stop` ends the run after the last of them.
    """

    def __init__(
        self,
        skip: int = 5,
        warmup: int = 1,
        cycle: int = 4,
        repeat: int = 1,
        with_stack: bool = False,
        output_dir: str | Path | None = None,
        stop: bool = False,
    ) -> None:
        if min(cycle, repeat) < 1 or min(skip, warmup) < 0:
            raise ValueError(
                f"skip={skip}, warmup={warmup}, cycle={cycle}, repeat={repeat} give no trace. "
                "cycle and repeat must be at least 1, none of them negative."
            )
        self.with_stack, self.stop = with_stack, stop
        self.traced = repeat * (warmup + cycle)
        self.left = skip + self.traced
        self.schedule = schedule(
            skip_first=skip, wait=0, warmup=warmup, active=cycle, repeat=repeat
        )
        self.output_dir = output_dir
        self.profile: profile | None = None
        self.paths: list[Path] = []
        """What this rank has written."""

    def pre_fit(self, trainer: "DreamTrainer") -> None:
        self.is_cuda = trainer.world.device.type == "cuda"
        run = Path(trainer.config.logging_parameters.root_dir) / trainer.experiment
        self.folder = Path(self.output_dir or run / "profile")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.forward = ExitStack()
        surround(trainer, "training_step", self._forward)
        surround(trainer, "backward", self._backward)
        surround(trainer, "step", partial(record_function, "optimizer"))
        self.profile = profile(
            activities=[ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * self.is_cuda],
            schedule=self.schedule,
            on_trace_ready=partial(self._write, trainer),
            record_shapes=True,
            with_stack=self.with_stack,
        )
        self._record_memory()
        self.profile.start()

    def post_train_step(
        self, trainer: "DreamTrainer", result: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        if self.profile is None or trainer.is_accumulating_gradients:
            return
        self.left -= 1
        self._record_memory()
        self.profile.step()
        if not self.left:
            self._end(trainer)
            trainer.is_stopping = trainer.is_stopping or self.stop

    def post_fit(self, trainer: "DreamTrainer") -> None:
        self._end(trainer)
        if not self.paths and trainer.world.is_rank_zero:
            print(
                f"profile: the run ended {self.left} steps too early for a trace. Train on more "
                "data, or skip less.",
                flush=True,
            )

    def on_interrupt(self, trainer: "DreamTrainer") -> None:
        self._end(trainer)

    @contextmanager
    def _forward(self) -> Iterator[None]:
        with self.forward:
            self.forward.enter_context(record_function("forward"))
            yield

    @contextmanager
    def _backward(self) -> Iterator[None]:
        self.forward.close()  # What training_step does before its first backward.
        with record_function("backward"):
            yield

    def _record_memory(self) -> None:
        if self.is_cuda and self.left == self.traced:
            torch.cuda.memory._record_memory_history(max_entries=MEMORY_EVENTS)

    def _end(self, trainer: "DreamTrainer") -> None:
        if self.profile is None:
            return
        ended, self.profile = self.profile, None
        ended.stop()
        release(trainer, *METHODS)
        if self.is_cuda:
            torch.cuda.memory._record_memory_history(enabled=None)

    def _write(self, trainer: "DreamTrainer", traced: profile) -> None:
        number = sum(path.suffix == ".gz" for path in self.paths) + 1
        name = f"rank{trainer.world.rank}" + (f"-{number}" if number > 1 else "")
        trace = self.folder / f"{name}.json.gz"
        traced.export_chrome_trace(str(trace))
        self.paths.append(trace)
        if self.is_cuda:
            memory = self.folder / f"{name}-memory.pickle"
            torch.cuda.memory._dump_snapshot(str(memory))
            self.paths.append(memory)
        if trainer.world.is_rank_zero:
            print(f"profile: {trace}, open it in https://ui.perfetto.dev", flush=True)
