"""Two ranks whose clocks, stores and patience differ; one run after the other in one group.

    torchrun failing_saves.py ROOT

Writes ROOT/NAME.json: {"begun": the steps each rank began to save, "kept": what is there in the
end, "ended": each rank's last step, "raised": each rank's error, "told": rank 0's warnings}.
"""

import contextlib
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from dream_trainer.callbacks import Callback, CheckpointCallback
from dream_trainer.callbacks.checkpoint import AsyncCheckpointCallback
from dream_trainer.checkpoint import manifest, saving, stopping, writer
from dream_trainer.checkpoint.store import Store
from dream_trainer.configs import (
    CheckpointParameters,
    DeviceParameters,
    LoggingParameters,
    RunError,
    TrainingParameters,
)
from dream_trainer.utils.entrypoint import guarded
from tests.runtime import sized
from tests.runtime.reshape_cases import Trainer, gathered

STEPS = 6


class Watch(Callback):
    """Notes every save that begins, and logs another value on each rank."""

    logs = True

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.begun: list[int] = []

    def pre_fit(self, trainer: Any) -> None:
        saver = next(c for c in trainer.callbacks if isinstance(c, CheckpointCallback)).saver
        assert saver is not None
        save = saver.save

        def noted(trainer: Any, found: Any) -> Any:
            self.begun.append(trainer.global_step)
            return save(trainer, found)

        saver.save = noted  # type: ignore[method-assign]

    def post_train_step(self, trainer: Any, result: Any, batch: Any, batch_idx: int) -> None:
        time.sleep(self.seconds)
        sign = 1 if trainer.world.is_rank_zero else -1
        trainer.logged["mine"] = sign * abs(trainer.global_step - 3.2)


def skewed(rank: int) -> Any:
    """Rank 1's clock is ahead, and runs ten times as fast."""
    clock = SimpleNamespace(monotonic=lambda: 1000 + 10 * time.monotonic())
    return mock.patch.object(stopping, "time", clock) if rank else contextlib.nullcontext()


def slow_to_write(rank: int) -> Any:
    """Rank 1 takes longer than all wait, once."""
    original = writer.LocalWriter.write_data

    def write(own: Any, plan: Any, planner: Any) -> Any:
        if rank and own.manifest.step == 3:
            time.sleep(2.5)
        return original(own, plan, planner)

    return mock.patch.object(writer.LocalWriter, "write_data", write)


def slow_to_remove(rank: int) -> Any:
    original = manifest.Checkpoint.remove

    def remove(own: Any) -> None:
        time.sleep(1.5)
        original(own)

    return mock.patch.object(manifest.Checkpoint, "remove", remove)


def impatient(rank: int) -> Any:
    """Rank 1 gives the last save up, at the very moment in which it is published."""
    original = saving.Saver.wait

    def wait(own: Any, limit: float | None = None) -> Any:
        save = original(own, limit)
        if rank and save is not None and save.manifest.step == STEPS and save.error is None:
            save.error = TimeoutError("not done")
        return save

    return mock.patch.object(saving.Saver, "wait", wait)


def without_memory(rank: int) -> Any:
    original = saving.Saver._stage
    count = [0]

    def stage(own: Any, stager: Any, state: Any, staged: Any, target: Any) -> None:
        count[0] += 1
        if rank and count[0] == 3:
            target.failure = MemoryError("no host memory")
            return
        original(own, stager, state, staged, target)

    return mock.patch.object(saving.Saver, "_stage", stage)


Made = tuple[type[CheckpointCallback], Callable[[int], Any], float, dict[str, Any]]
NOW, BEHIND = CheckpointCallback, AsyncCheckpointCallback
ONE_SECOND = {"checkpoint_every_n_steps": 1, "save_timeout_seconds": 1}

CASES: dict[str, Made] = {
    "clocks": (NOW, skewed, 0.1, {"checkpoint_every_n_minutes": 0.003, "time_limit_minutes": 9}),
    "monitor": (
        NOW,
        skewed,
        0,
        {
            "checkpoint_every_n_steps": 1,
            "resume_mode": "min",
            "monitor": "mine",
            "keep_top_k": 2,
        },
    ),
    "slow": (NOW, slow_to_write, 0, ONE_SECOND),
    "slow behind": (BEHIND, slow_to_write, 0, ONE_SECOND),
    "stop": (NOW, slow_to_write, 0, ONE_SECOND | {"on_failed_save": "stop"}),
    "impatient": (BEHIND, impatient, 0, {"checkpoint_every_n_steps": 3}),
    "slow to remove": (BEHIND, slow_to_remove, 0, ONE_SECOND | {"keep_top_k": 4}),
    "no memory": (BEHIND, without_memory, 0, {"checkpoint_every_n_steps": 1, "keep_top_k": 9}),
}


@contextlib.contextmanager
def recorded() -> Iterator[io.StringIO]:
    told = io.StringIO()
    with contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO()):
        yield told


def train(name: str, root: Path) -> None:
    saves, trap, seconds, parameters = CASES[name]
    watch = Watch(seconds)
    config = sized.Config(
        experiment="run",
        device_parameters=DeviceParameters.FSDP(compile_model=False, param_dtype="float32"),
        training_parameters=TrainingParameters(max_steps=20 if seconds else STEPS),
        logging_parameters=LoggingParameters(enabled=False),
        checkpoint_parameters=CheckpointParameters(root_dir=str(root / name), **parameters),
        callbacks=[watch, saves()],
    )
    trainer = Trainer(config)
    trainer.case = {}
    raised = ""
    with recorded() as told, trap(int(os.environ["RANK"])):
        try:
            trainer.fit()
        except RunError as error:
            raised = str(error)
    size = trainer.world.world_size
    everyone = gathered((watch.begun, trainer.global_step, raised), size)
    if trainer.world.is_rank_zero:
        found = manifest.checkpoints(Store(root / name / "run/checkpoints"))
        lines = [line for line in told.getvalue().splitlines() if line.startswith("warning")]
        record = {
            "begun": [begun for begun, _, _ in everyone],
            "ended": [step for _, step, _ in everyone],
            "raised": [error for _, _, error in everyone],
            "kept": [c.manifest.step for c in found if not c.problems()],
            "told": lines,
        }
        (root / f"{name}.json").write_text(json.dumps(record))


@guarded
def main() -> None:
    for name in CASES:
        train(name, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
