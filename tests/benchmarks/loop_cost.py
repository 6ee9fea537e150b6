"""What the loop costs per step, over the same steps written by hand.

    python tests/benchmarks/loop_cost.py [--steps 3000] [--rounds 7] [--json FILE]

A two-layer MLP, AdamW (fused), batches ready in memory, one thread, no callbacks. The
rows alternate round by round in one process, so that the machine's drift hits all alike;
the figure is the median over rounds of (microseconds a step - by hand). Lightning Fabric
and Accelerate join where they are installed.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "runtime"))

import torch
import torch.nn.functional as F
from torch import nn

from dream_trainer import DreamTrainer, DreamTrainerConfig
from dream_trainer.configs import DeviceParameters, TrainingParameters

Batch = dict[str, torch.Tensor]


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


def make_batches(steps: int) -> list[Batch]:
    generator = torch.Generator().manual_seed(0)
    batch = {
        "input": torch.randn(8, 16, generator=generator),
        "target": torch.randint(4, (8,), generator=generator),
    }
    return [batch] * steps


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)


def loss_of(model: nn.Module, batch: Batch) -> torch.Tensor:
    return F.cross_entropy(model(batch["input"]), batch["target"])


def by_hand(clip: float | None) -> Callable[[int], float]:
    model = make_model()
    optimizer = make_optimizer(model)

    def run(steps: int) -> float:
        batches = make_batches(steps)
        begin = time.perf_counter()
        for batch in batches:
            loss = loss_of(model, batch)
            loss.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad()
        return time.perf_counter() - begin

    return run


class Trainer(DreamTrainer):
    steps = 0

    def configure_models(self) -> None:
        self.model = make_model()

    def configure_optimizers(self) -> dict[nn.Module, torch.optim.Optimizer]:
        self.optimizer = make_optimizer(self.model)
        return {self.model: self.optimizer}

    def configure_dataloaders(self) -> tuple[list[Batch], None]:
        return make_batches(self.steps), None

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        loss = loss_of(self.model, batch)
        self.backward(loss)
        return {"train/loss": loss, "train/grad_norm": self.step(self.optimizer)}


class Clock(__import__("dream_trainer").callbacks.Callback):  # type: ignore[misc]
    """Takes the time of the loop alone, without set-up."""

    def pre_train_epoch(self, trainer: Any) -> None:
        self.begin = time.perf_counter()

    def post_train_epoch(self, trainer: Any) -> None:
        self.seconds = time.perf_counter() - self.begin


def dream(clip: float | None) -> Callable[[int], float]:
    def run(steps: int) -> float:
        clock = Clock()
        trainer = Trainer(
            DreamTrainerConfig(
                device_parameters=DeviceParameters.SINGLE_DEVICE(
                    param_dtype="float32", compile_model=False
                ),
                training_parameters=TrainingParameters(gradient_clip_val=clip),
                callbacks=[clock],
            )
        )
        trainer.steps = steps
        trainer.fit()
        return clock.seconds

    return run


def fabric(clip: float | None) -> Callable[[int], float]:
    from lightning.fabric import Fabric

    lightning = Fabric(accelerator="cpu", devices=1)
    lightning.launch()
    bare = make_model()
    model, optimizer = lightning.setup(bare, make_optimizer(bare))

    def run(steps: int) -> float:
        batches = make_batches(steps)
        begin = time.perf_counter()
        for batch in batches:
            lightning.backward(loss_of(model, batch))
            if clip is not None:
                lightning.clip_gradients(model, optimizer, max_norm=clip)
            optimizer.step()
            optimizer.zero_grad()
        return time.perf_counter() - begin

    return run


def accelerate(clip: float | None) -> Callable[[int], float]:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    bare = make_model()
    model, optimizer = accelerator.prepare(bare, make_optimizer(bare))

    def run(steps: int) -> float:
        batches = make_batches(steps)
        begin = time.perf_counter()
        for batch in batches:
            accelerator.backward(loss_of(model, batch))
            if clip is not None:
                accelerator.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad()
        return time.perf_counter() - begin

    return run


def measure(steps: int, rounds: int, clip: float | None) -> dict[str, dict[str, float]]:
    runs = {}
    for name, make in {
        "by hand": by_hand,
        "dream": dream,
        "fabric": fabric,
        "accelerate": accelerate,
    }.items():
        try:
            runs[name] = make(clip)
        except ImportError:
            continue
    for run in runs.values():
        run(steps // 10)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(1e6 * run(steps) / steps)
    return {
        name: {
            "us_per_step": statistics.median(taken),
            "over_by_hand": statistics.median(
                own - hand for own, hand in zip(taken, times["by hand"], strict=True)
            ),
        }
        for name, taken in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    report = {
        "bare": measure(options.steps, options.rounds, None),
        "clipped": measure(options.steps, options.rounds, 1.0),
    }
    for case, rows in report.items():
        print(f"{case:<12}{'us/step':>10}{'over by hand':>15}{'ratio':>8}")
        for name, row in rows.items():
            ratio = row["us_per_step"] / rows["by hand"]["us_per_step"]
            print(
                f"  {name:<10}{row['us_per_step']:>10.1f}{row['over_by_hand']:>15.1f}{ratio:>8.2f}"
            )
    if options.json:
        options.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
