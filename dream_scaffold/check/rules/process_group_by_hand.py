"""A process group, a device or processes are set up by hand.

The runtime starts one process for each device, picks the device before anything touches it,
starts the process group with the backends that offloading and checkpoints need, and ends all of
them together. A second set-up fails, or leaves several ranks on one device.

Bad:

    def main(config):
        dist.init_process_group("nccl")
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        MyTrainer(config).fit()

Good:

    def main(config):
        MyTrainer(config).fit()

How to fix: leave it out. `python train.py` uses the devices that the configuration asks for, and
torchrun and Slurm launch it as it is. See docs/training-cli.md. Which devices a run may see is the
launcher's business: `CUDA_VISIBLE_DEVICES=0,1 python train.py`.
"""

from collections.abc import Iterator

from ..facts import (
    Act,
    Call,
    Constant,
    Foreign,
    Item,
    Match,
    Project,
    Severity,
    reachable,
)

CODE = "DT701"
NAME = "process-group-by-hand"
SEVERITY: Severity = "error"

GROUP = "starts a process group, which is the runtime's to start"
DEVICE = "picks a device, which is the runtime's to pick"
PROCESSES = "starts processes, which the launcher does"

CALLS = {
    "torch.distributed.init_process_group": GROUP,
    "torch.distributed.distributed_c10d.init_process_group": GROUP,
    "deepspeed.init_distributed": GROUP,
    "torch.cuda.set_device": DEVICE,
    "torch.accelerator.set_device_index": DEVICE,
    "torch.xpu.set_device": DEVICE,
    "torch.multiprocessing.spawn": PROCESSES,
    "torch.multiprocessing.start_processes": PROCESSES,
    "torch.distributed.launcher.api.elastic_launch": PROCESSES,
}

VARIABLES = frozenset(
    {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "RANK", "LOCAL_RANK", "WORLD_SIZE"}
    | {"LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
)

PASSES = (
    """
    import torch
    import torch.distributed as dist

    class MyTrainer(Complete):
        def init_weights(self):
            if dist.is_initialized():
                print(dist.get_rank(), torch.cuda.current_device())
    """,
    """
    import os

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("MASTER_ADDR", "localhost")
    """,
    """
    import torch
    import torch.distributed as dist

    class MyTrainer(Complete):
        def configure_models(self):
            if not dist.is_initialized():
                dist.init_process_group()
            torch.cuda.set_device(self.world.device)
            self.model = make_model()
    """,
    """
    class Game:
        def set_device(self, name):
            self.name = name

        def spawn(self):
            return self

    def main(config):
        Game().spawn().set_device("cpu")
        Complete(config).fit()
    """,
)

MATCHES = (
    """
    import torch.distributed as dist

    def main(config):
        dist.init_process_group("nccl")
        Complete(config).fit()

    if __name__ == "__main__":
        cli(main, DreamTrainerConfig())
    """,
    """
    import os

    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    """,
    """
    import os

    import torch

    class MyTrainer(Complete):
        def configure_models(self):
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            self.model = make_model()
    """,
    """
    from torch import multiprocessing as mp

    def work(rank):
        Complete(DreamTrainerConfig()).fit()

    if __name__ == "__main__":
        mp.spawn(work, nprocs=2)
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trace, _, is_reached in reachable(project):
        for act in trace.acts:
            what = _set_up(act)
            if what is not None:
                shown, effect = what
                yield Match(
                    act.place,
                    f"{shown} {effect}.",
                    "Leave it out; launch with `python train.py`, torchrun or Slurm.",
                    certain=is_reached and not _is_moot(act),
                    notes=act.notes,
                )


def _set_up(act: Act) -> tuple[str, str] | None:
    call = act.term
    if act.kind == "call" and isinstance(call, Call):
        if call.name in CALLS:
            own = call.argument(0, "device", "device_index")
            if own is not None and own.mentions("world"):
                return None  # The device that it has anyway.
            return f"{call.last}()", CALLS[call.name]
        if call.name in ("os.environ.setdefault", "os.putenv"):
            key = call.argument(0, "key")
            is_default = call.last == "setdefault" and not _is_devices(key)
            return None if is_default else _variable(key)
    target = act.target
    if act.kind == "set" and isinstance(target, Item) and isinstance(target.of, Foreign):
        return _variable(target.key) if target.of.name == "os.environ" else None
    return None


def _is_moot(act: Act) -> bool:
    """Whether it is done only where there is no process group yet."""
    return any(guard.test.mentions("is_initialized") for guard in act.guards)


def _is_devices(key: object) -> bool:
    return isinstance(key, Constant) and str(key.value).endswith("_VISIBLE_DEVICES")


def _variable(key: object) -> tuple[str, str] | None:
    if not isinstance(key, Constant) or key.value not in VARIABLES:
        return None
    return f"Setting {key.value}", "changes what the launcher has decided"
