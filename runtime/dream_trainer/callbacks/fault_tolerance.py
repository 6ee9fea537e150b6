"""Training that goes on while some of its jobs are down."""

import os
import socket
import sys
from collections.abc import Sequence
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any
from zlib import crc32

import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from ..checkpoint.handover import packed_state, unpack_state
from ..configs import FaultToleranceParameters, RunError
from ..position import Position
from ..streams import seed_everything, stream_seed
from .callback import Callback

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from ..trainer import DreamTrainer


class FaultToleranceCallback(Callback):
    """Makes one run of several jobs, each of which may die and come back, by torchft.

    Motive: on many nodes something always fails, and a restart from a checkpoint idles all of
    them. Each replica group is a job of its own (`torchrun`) with the mesh of
    `DeviceParameters`; groups read different data, average their gradients before each step,
    and take the whole state from a living one when they join. A step that a loss interrupts
    is given up by all. `FaultToleranceParameters` say which group this is, and where the
    lighthouse is: `torchft_lighthouse --min_replicas 1`.

    Groups weigh alike, whatever `num_items` says; each logs and saves under a name of its own.
    """

    def __init__(self) -> None:
        self.parameters: FaultToleranceParameters | None = None
        self.manager: Any = None
        self.process_group: Any = None
        self.is_open = False
        """Whether the groups of the step under way have been agreed on."""

    def pre_configure(self, trainer: "DreamTrainer") -> None:
        parameters = trainer.config.fault_tolerance_parameters
        if parameters is None or not parameters.enable:
            return
        self.parameters = parameters
        group = _number(parameters.replica_group, "REPLICA_GROUP_ID", 0)
        groups = _number(parameters.replica_groups, "NUM_REPLICA_GROUPS", 1)
        if group >= groups:
            raise RunError(
                f"There is no replica group {group} among {groups}. Set replica_groups (or "
                "NUM_REPLICA_GROUPS) to the number of jobs."
            )
        _torchft()
        if not (parameters.lighthouse_address or os.environ.get("TORCHFT_LIGHTHOUSE")):
            raise RunError(
                "Replica groups find each other at a lighthouse, and none is named. Start one "
                "(torchft_lighthouse --min_replicas 1), and set lighthouse_address."
            )
        trainer.world.replica_group, trainer.world.replica_groups = group, groups
        trainer.experiment += f"-replica{group}" if groups > 1 else ""

    def post_setup(self, trainer: "DreamTrainer") -> None:
        if self.parameters is None:
            return
        world = trainer.world
        if len(trainer.optimizers) > 1:
            raise RunError(
                f"A step with {len(trainer.optimizers)} optimizers could count for one and not "
                "for the other. Use one optimizer, or leave FaultToleranceCallback out."
            )
        if world.replica_group:  # The weights are made: from here on, dropout of its own.
            seed = crc32(f"{trainer.config.seed}/replica{world.replica_group}".encode())
            seed_everything(stream_seed(seed, world.coordinate, world.axes.sizes))
        self.connect(trainer, self.parameters)
        trainer.gradient_sync.across = self.average

    def connect(self, trainer: "DreamTrainer", parameters: FaultToleranceParameters) -> None:
        """Join the lighthouse. All ranks of the group take part."""
        torchft, world = _torchft(), trainer.world
        host, port, self.store = socket.gethostname(), 0, None
        if world.is_rank_zero:
            self.store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False)
            port = self.store.port
        host, port = world.broadcast((host, port))
        timeout = timedelta(seconds=parameters.timeout_seconds)
        device = trainer.config.device_parameters
        patience = device.comm.train_timeout_seconds
        backend = "NCCL" if world.device.type == "cuda" and not device.cpu_offload else "Gloo"
        self.process_group = getattr(torchft, f"ProcessGroup{backend}")(timeout=timeout)
        self.manager = torchft.Manager(
            pg=self.process_group,
            state_dict=lambda: packed_state(trainer),
            load_state_dict=lambda received: self.heal(trainer, received),
            min_replica_size=parameters.min_replica_size,
            # The state must be there before the forward pass, and counters before the epoch.
            use_async_quorum=False,
            timeout=timeout,
            quorum_timeout=max(timeout, timedelta(seconds=patience)),
            rank=world.rank,
            world_size=world.world_size,
            store_addr=host,
            store_port=port,
            lighthouse_addr=parameters.lighthouse_address,
            replica_id=f"{parameters.replica_prefix or trainer.config.project}_"
            f"{world.replica_group}",
            max_retries=parameters.max_consecutive_failures,
        )

    def pre_fit(self, trainer: "DreamTrainer") -> None:
        if self.manager is not None:  # First of all: how much is left of the epoch depends on it.
            self.manager.start_quorum()
            self.is_open = True

    def pre_train_step(self, trainer: "DreamTrainer", batch: Any, batch_idx: int) -> None:
        if self.manager is not None and trainer.batches_in_window == 1 and not self.is_open:
            self.manager.start_quorum()
            self.is_open = True

    def average(self, gradients: Sequence[Tensor]) -> None:
        """Average over the groups of this step; after a failure the step will not count."""
        parts = [g._local_tensor if isinstance(g, DTensor) else g for g in gradients]
        for work in [self.manager.allreduce(part) for part in parts if part.numel()]:
            work.wait()

    def pre_optimizer_step(self, trainer: "DreamTrainer", optimizer: "Optimizer") -> None:
        if self.manager is None:
            return
        self.is_open = False
        if self.manager.should_commit():
            return
        for group in optimizer.param_groups:  # Nothing to step with.
            for parameter in group["params"]:
                parameter.grad = None
        self._say(
            trainer,
            f"warning: step {trainer.global_step + 1} is given up: a replica group was lost in "
            "it, or too few took part",
        )

    def heal(self, trainer: "DreamTrainer", received: dict[str, Any]) -> None:
        """Become the group that `received` is from, on its rank of the same place."""
        unpack_state(trainer, received)
        if trainer.reader is None:  # The loop has not begun.
            trainer.start_step = trainer.global_step
            trainer.position = Position(received["batches"])
        if trainer.global_step:
            self._say(trainer, f"fault tolerance: takes step {trainer.global_step} from a peer")

    def post_fit(self, trainer: "DreamTrainer") -> None:
        self._leave()

    def on_interrupt(self, trainer: "DreamTrainer") -> None:
        self._leave()

    def _leave(self) -> None:
        if self.manager is not None:
            self.manager.shutdown(wait=False)
            self.process_group.shutdown()
            self.manager = None

    def _say(self, trainer: "DreamTrainer", text: str) -> None:
        if trainer.world.is_rank_zero:
            print(text, file=sys.stderr if text.startswith("warning") else sys.stdout, flush=True)


def _number(value: int | None, variable: str, default: int) -> int:
    return int(os.environ.get(variable, default)) if value is None else value


def _torchft() -> Any:
    try:
        return import_module("torchft")
    except ImportError:
        raise RunError(
            "FaultToleranceCallback needs torchft. Install it (pip install torchft), or set "
            "fault_tolerance_parameters to None."
        ) from None
