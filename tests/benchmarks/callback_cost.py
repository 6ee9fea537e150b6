"""What each callback adds to a step, over the same loop without any.

    python tests/benchmarks/callback_cost.py [--steps 2000] [--rounds 7] [--json FILE]

The model, data and clock of `loop_cost.py`, on one CPU thread. Rows alternate round by round in
one process; the figure is the median over rounds of (microseconds a step - without callbacks).
Log files go to a temporary folder; nothing is validated or saved but in the rows that say so.
"""

import argparse
import contextlib
import io
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "runtime"))

import torch
from loop_cost import Clock, Trainer

from dream_trainer import DreamTrainerConfig, callbacks
from dream_trainer.configs import CheckpointParameters, DeviceParameters, LoggingParameters

Row = Callable[[], list[callbacks.Callback]]

ROWS: dict[str, Row] = {
    "none": list,
    "ProgressBar (no terminal)": lambda: [callbacks.ProgressBar()],
    "LRLogger + Logger, every 10 steps": lambda: [
        callbacks.LRLoggerCallback(),
        callbacks.LoggerCallback(),
    ],
    "MetricLogger (no metrics)": lambda: [callbacks.MetricLoggerCallback()],
    "default callbacks": lambda: [
        callbacks.ProgressBar(),
        callbacks.MetricLoggerCallback(),
        callbacks.LRLoggerCallback(),
        callbacks.LoggerCallback(),
    ],
    "Checkpoint (none due)": lambda: [callbacks.CheckpointCallback()],
    "EMA": lambda: [callbacks.EMACallback()],
    "GarbageCollection": lambda: [callbacks.GarbageCollectionCallback()],
    "ModelWatch": lambda: [callbacks.ModelWatchCallback()],
    "Benchmark": lambda: [callbacks.BenchmarkCallback(print_every=10**9)],
    "Profile (waiting)": lambda: [callbacks.ProfileCallback(skip=10**9)],
    "FindGraphBreaks (waiting)": lambda: [callbacks.FindGraphBreaksCallback(skip=10**9)],
}


def run(make: Row, steps: int, folder: str) -> float:
    """Microseconds a step with the callbacks of one row."""
    clock = Clock()
    trainer = Trainer(
        DreamTrainerConfig(
            device_parameters=DeviceParameters.SINGLE_DEVICE(
                param_dtype="float32", compile_model=False
            ),
            logging_parameters=LoggingParameters(root_dir=folder),
            checkpoint_parameters=CheckpointParameters(
                root_dir=folder, checkpoint_every_n_steps=10**9
            ),
            callbacks=[*make(), clock],
        )
    )
    trainer.steps = steps
    with contextlib.redirect_stdout(io.StringIO()):
        trainer.fit()
    return float(1e6 * clock.seconds / steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    taken: dict[str, list[float]] = {name: [] for name in ROWS}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for make in ROWS.values():
            run(make, options.steps // 10, folder)
        for _ in range(options.rounds):
            for name, make in ROWS.items():
                taken[name].append(run(make, options.steps, folder))
    base = taken["none"]
    added = {
        name: statistics.median(own - none for own, none in zip(row, base, strict=True))
        for name, row in taken.items()
    }
    print(f"a step without callbacks: {statistics.median(base):.0f} us; added by")
    for name, value in added.items():
        print(f"  {name:<36}{value:8.1f} us")
    if options.json:
        report: dict[str, Any] = {"base_us": statistics.median(base), "added_us": added}
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
