"""One replica group of a run that `test_fault_tolerance` starts, kills and starts again.

    python replica_group.py GROUP LIGHTHOUSE OUT steps N      trains N steps
    python replica_group.py GROUP LIGHTHOUSE OUT dies         is killed in a step with the other
    python replica_group.py GROUP LIGHTHOUSE OUT survives     until the other has died and is back
    python replica_group.py GROUP LIGHTHOUSE OUT returns      a few steps with the other

At its end it writes its state, and how its steps came about, to OUT.
"""

import os
import signal
import sys
import time
from typing import Any

import torch

from dream_trainer.callbacks import Callback, EMACallback, FaultToleranceCallback
from dream_trainer.checkpoint.state import flattened
from dream_trainer.configs import DeviceParameters, FaultToleranceParameters
from dream_trainer.utils.entrypoint import guarded
from tests.runtime.tiny import FLOAT32, Batch, TinyTrainer, batches, config

SECONDS_A_STEP = 0.02
TOGETHER = 5
"""Steps of both groups before one dies, and after it is back."""

BATCHES = 200


class Trainer(TinyTrainer):
    """Momentum, so that the optimizer has a state to hand over, and a schedule."""

    def configure_optimizers(self) -> Any:
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        return {self.model: self.optimizer}

    def configure_schedulers(self) -> Any:
        return {self.optimizer: torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.99)}

    def configure_dataloaders(self) -> Any:
        return batches(BATCHES, seed=self.world.dp_rank), None


class Watch(Callback):
    """Notes how many groups made each step; ends the run, or the process."""

    def __init__(self, role: str) -> None:
        self.role = role
        self.groups: list[int] = []
        self.read: list[Batch] = []

    def pre_train_step(self, trainer: Any, batch: Batch, batch_idx: int) -> None:
        self.read.append(batch)
        time.sleep(SECONDS_A_STEP)
        if self.role == "dies" and self.groups[-TOGETHER:] == [2] * TOGETHER:
            os.kill(os.getpid(), signal.SIGKILL)

    def post_train_step(self, trainer: Any, result: Any, batch: Batch, batch_idx: int) -> None:
        manager = trainer.callbacks["FaultToleranceCallback"].manager
        self.groups.append(manager.num_participants())
        is_back = self.role == "returns" or (2, 1) in zip(
            self.groups, self.groups[1:], strict=False
        )
        is_done = is_back and self.groups[-TOGETHER:] == [2] * TOGETHER
        trainer.is_stopping |= is_done and self.role in ("survives", "returns")


def make(group: int, lighthouse: str, callbacks: list[Callback], **training: Any) -> Trainer:
    device = DeviceParameters.FSDP(dp_shard=1, force_fsdp=True, **FLOAT32)
    settings = config(device, [FaultToleranceCallback(), *callbacks], **training)
    settings.experiment = "run"
    settings.fault_tolerance_parameters = FaultToleranceParameters(
        lighthouse_address=lighthouse, replica_group=group, replica_groups=2, timeout_seconds=20
    )
    return Trainer(settings)


def whole_state(trainer: Trainer) -> dict[str, Any]:
    """Everything that groups have in common."""
    states: dict[str, Any] = {
        "model": trainer.model.state_dict(),
        "average": trainer.callbacks["EMACallback"].state_dict(),
        "optimizer": {str(k): v for k, v in trainer.optimizer.state_dict()["state"].items()},
        "schedule": trainer.schedulers[trainer.optimizer].state_dict(),
    }
    return {
        name: value.full_tensor() if hasattr(value, "full_tensor") else value
        for name, value in flattened(states).items()
    }


@guarded
def main() -> None:
    group, lighthouse, out, role, *steps = sys.argv[1:]
    watch = Watch(role)
    last = int(steps[0]) if steps else 5_000
    trainer = make(int(group), lighthouse, [EMACallback(decay=0.5), watch], max_steps=last)
    trainer.fit()
    told = {
        "state": whole_state(trainer),
        "groups": watch.groups,
        "first": watch.read[0],
        "start": trainer.start_step,
        "step": trainer.global_step,
        "experiment": trainer.experiment,
    }
    torch.save(told, out)


if __name__ == "__main__":
    main()
