"""What saving and resuming cost, over raw DCP on the same state.

    python tests/benchmarks/checkpoints.py [--megabytes 512] [--rounds 7] [--json FILE]
    torchrun --nproc-per-node=2 tests/benchmarks/checkpoints.py

One linear stack with AdamW's moments, sharded over the ranks where there are several. The
rows alternate round by round in one process; every round writes to a new folder and flushes
it; the figures are medians over the rounds of the ratio to raw DCP in the same round.

    raw            dcp.save of the state, which fsyncs its files; dcp.load
    save           `CheckpointCallback`: counted, checked, published; with `read_back` besides
    async blocked  what `AsyncCheckpointCallback` holds training up for, less the bare copy
    resume         verified by checksum, then loaded
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "runtime"))

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.fsdp import fully_shard

from dream_trainer import DreamTrainer, DreamTrainerConfig, lifecycle
from dream_trainer.callbacks import CallbackCollection, CheckpointCallback
from dream_trainer.callbacks.callback import Events
from dream_trainer.checkpoint.manifest import checkpoints, folder_of
from dream_trainer.checkpoint.restore import load, verify_together
from dream_trainer.checkpoint.saving import Saver
from dream_trainer.checkpoint.state import collect
from dream_trainer.checkpoint.store import Store
from dream_trainer.configs import CheckpointParameters, DeviceParameters
from dream_trainer.processes import Process

WIDTH = 1024


class Trainer(DreamTrainer):
    """As many square layers as were asked for; it never trains."""

    layers = 1

    def configure_models(self) -> None:
        self.model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(self.layers)))

    def apply_fully_shard(self, config: dict[str, Any]) -> None:
        for layer in self.model:
            fully_shard(layer, **config)
        fully_shard(self.model, **config)

    def configure_optimizers(self) -> dict[nn.Module, torch.optim.Optimizer]:
        self.optimizer = torch.optim.AdamW(self.model.parameters(), fused=True)
        return {self.model: self.optimizer}

    def configure_dataloaders(self) -> tuple[list[Any], None]:
        return [], None

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {}


def ready(root: str, layers: int) -> Trainer:
    """A trainer with all of its state, as after a step."""
    several = Process.from_environment().world_size > 1
    trainer = Trainer(
        DreamTrainerConfig(
            experiment="bench",
            device_parameters=DeviceParameters.FSDP(param_dtype="float32", compile_model=False)
            if several
            else DeviceParameters.SINGLE_DEVICE(param_dtype="float32", compile_model=False),
            checkpoint_parameters=CheckpointParameters(root_dir=root, keep_top_k=1),
        )
    )
    trainer.layers = layers
    trainer.callbacks = CallbackCollection([])
    trainer.events = Events((), rank=0)
    lifecycle.set_up(trainer)
    for parameter in trainer.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    trainer.optimizer.step()
    trainer.optimizer.zero_grad()
    return trainer


class Bench:
    """The rows, all on one trainer."""

    def __init__(self, trainer: Trainer, root: str) -> None:
        self.trainer, self.root = trainer, root
        self.callback = CheckpointCallback()
        self.step = 0
        parameters = trainer.config.checkpoint_parameters or CheckpointParameters()
        store = Store(folder_of(root, "bench"))
        self.store = store
        self.savers = {
            "save": Saver(trainer.world, store, parameters, behind=False),
            "save, read_back": Saver(
                trainer.world,
                store,
                CheckpointParameters(root_dir=root, keep_top_k=1, read_back=True),
                behind=False,
            ),
            "async": Saver(trainer.world, store, parameters, behind=True),
        }

    def timed(self, work: Callable[[], object]) -> float:
        if self.trainer.world.world_size > 1:
            dist.barrier()
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin

    def raw_save(self) -> None:
        dcp.save(collect(self.trainer), checkpoint_id=f"{self.root}/raw-{self.step}")

    def save(self, kind: str) -> None:
        self.step += 1
        self.trainer.global_step = self.step
        done = self.savers[kind].save(self.trainer, self.callback._manifest(self.trainer))
        if done is not None and done.error is not None:
            raise done.error

    def round(self) -> dict[str, float]:
        """Seconds of every row."""
        self.step += 1
        row = {"raw save": self.timed(self.raw_save)}
        row["raw load"] = self.timed(self.raw_load)
        if self.trainer.world.is_rank_zero:
            shutil.rmtree(f"{self.root}/raw-{self.step}")
        row["save"] = self.timed(lambda: self.save("save"))
        row["save, read_back"] = self.timed(lambda: self.save("save, read_back"))
        state = collect(self.trainer)
        row["copy"] = self.timed(lambda: self.savers["async"].stager.stage(state))
        row["async blocked"] = self.timed(lambda: self.save("async"))
        row["async rest"] = self.timed(self.savers["async"].wait)
        row["resume"] = self.timed(self.resume)
        return row

    def raw_load(self) -> None:
        dcp.load(collect(self.trainer), checkpoint_id=f"{self.root}/raw-{self.step}")

    def resume(self) -> None:
        newest = checkpoints(self.store)[0]
        if problems := verify_together(self.trainer, newest):
            raise SystemExit(str(problems))
        load(self.trainer, newest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--megabytes", type=int, default=512, help="of state, over all ranks")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    process = Process.from_environment()
    box = [tempfile.mkdtemp(prefix="checkpoints-") if process.rank == 0 else ""]
    root = box[0] or str(Path(tempfile.gettempdir()) / "unused")
    trainer = ready(root, max(1, arguments.megabytes * 2**20 // (12 * WIDTH * (WIDTH + 1))))
    if process.world_size > 1:
        dist.broadcast_object_list(box, src=0)
    bench = Bench(trainer, box[0])
    try:
        bench.round()
        rows = [bench.round() for _ in range(arguments.rounds)]
    finally:
        if process.rank == 0:
            shutil.rmtree(box[0], ignore_errors=True)
    if process.rank == 0:
        report(rows, arguments, process.world_size)
    dist.destroy_process_group()


def report(rows: list[dict[str, float]], arguments: argparse.Namespace, ranks: int) -> None:
    def median(of: Callable[[dict[str, float]], float]) -> float:
        return statistics.median(of(row) for row in rows)

    figures = {
        "save / raw": median(lambda r: r["save"] / r["raw save"]),
        "save, read_back / raw": median(lambda r: r["save, read_back"] / r["raw save"]),
        "async blocked, less the copy / raw": median(
            lambda r: max(0.0, r["async blocked"] - r["copy"]) / r["raw save"]
        ),
        "resume / raw load": median(lambda r: r["resume"] / r["raw load"]),
    }
    seconds = {name: median(lambda r, name=name: r[name]) for name in rows[0]}
    print(f"{arguments.megabytes} MB of state, {ranks} rank(s), {arguments.rounds} rounds")
    for name, value in seconds.items():
        print(f"  {name:<36}{value:8.3f} s")
    for name, value in figures.items():
        print(f"  {name:<36}{value:8.2f} x")
    if arguments.json:
        arguments.json.write_text(json.dumps({"seconds": seconds, "ratios": figures}, indent=1))


if __name__ == "__main__":
    main()
