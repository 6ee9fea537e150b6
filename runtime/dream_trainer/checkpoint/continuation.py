"""Going on where a run was: data, random streams, and what is no longer the same."""

from typing import TYPE_CHECKING, Any
from zlib import crc32

from torch.utils.data import DistributedSampler

from ..position import Position
from ..streams import RandomState, seed_everything, stream_seed
from .manifest import Manifest
from .state import settings

if TYPE_CHECKING:
    from ..trainer import DreamTrainer

SCHEDULED = {"lr", "momentum", "betas"}
"""What schedulers change: no difference to speak of."""

PROGRESS = {"last_epoch", "T_cur", "T_i"}
"""What schedulers know of how far they are; so do their names with an underscore."""


def continue_data(
    trainer: "DreamTrainer", position: Position, manifest: Manifest, batch_size: int | None
) -> list[str]:
    """Bring the training data to `position`; returns what cannot be exact, a line each.

    `batch_size` is that of the loader that `position` belongs to, where it has one.
    """
    trainer.position = position
    loader = trainer.train_loader
    now = getattr(loader, "batch_size", None)
    ranks, ranks_before = trainer.world.dp_size, manifest.progress["dp_size"]
    if not position.batches or (ranks, now) == (ranks_before, batch_size):
        return []
    if getattr(loader, "global_position", False):
        trainer.position = Position(position.batches, position.loader, is_counted=False)
        return []
    if now is None or batch_size is None or not _is_dealt_by_torch(loader):
        trainer.position = Position()
        return [
            f"{type(loader).__name__} cannot go on with {ranks} data ranks instead of "
            f"{ranks_before}: the epoch begins again. Give it global_position = True and a state "
            "that counts the samples of all ranks"
        ]
    samples = position.batches * ranks_before * batch_size
    batches, repeated = divmod(samples, ranks * now)
    trainer.position = Position(batches)  # No streams: rank 0's would be everybody's.
    if not repeated:
        return []
    return [f"{repeated} samples are read again: {samples} do not fill batches of {ranks} x {now}"]


def _is_dealt_by_torch(loader: Any) -> bool:
    """Whether samples go round the ranks in one common order: any number of them can go on."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    samplers = (getattr(loader, "sampler", None), getattr(batch_sampler, "sampler", None))
    return any(isinstance(sampler, DistributedSampler) for sampler in samplers)


def continue_randomness(trainer: "DreamTrainer", state: RandomState, same_mesh: bool) -> list[str]:
    """Go on with this rank's random streams; on another mesh with new ones."""
    trainer.restore_random_state(state)
    if same_mesh:
        return []
    world = trainer.world
    seed = crc32(f"{trainer.config.seed}/{trainer.global_step}".encode())
    seed_everything(stream_seed(seed, world.coordinate, world.axes.sizes))
    return ["dropout and other random draws are new ones: the mesh is another"]


def differences(trainer: "DreamTrainer", shared: dict[str, Any]) -> list[str]:
    """What the configuration says otherwise than the checkpoint, which wins; a line each.

    To be asked before the optimizers are loaded.
    """
    notes = []
    if trainer.config.seed != shared["seed"]:
        notes.append(
            f"seed={trainer.config.seed} is not the {shared['seed']} of the checkpoint: the data "
            "come in another order"
        )
    for name, optimizer in trainer.optimizers.items():
        for index, (new, old) in enumerate(
            zip(settings(optimizer), shared["optimizers"][name], strict=False)
        ):
            ignored = SCHEDULED if "initial_lr" in old else set()
            for key in old.keys() & new.keys() - ignored:
                if str(old[key]) != str(new[key]):
                    notes.append(
                        f"{name}, group {index}: {key} stays {old[key]} as in the checkpoint, "
                        f"not {new[key]}"
                    )
        notes += _of_schedule(name, trainer.schedulers.get(optimizer), shared["schedulers"])
    return sorted(notes)


def _of_schedule(name: str, scheduler: Any, saved: dict[str, Any]) -> list[str]:
    """What a schedule would be by the configuration: its numbers, but for how far it is."""
    if scheduler is None:
        return []
    old, new = saved[name], scheduler.state_dict()
    told = [key for key in old.keys() & new.keys() - PROGRESS if not key.startswith("_")]
    return [
        f"the schedule of {name}: {key} stays {old[key]} as in the checkpoint, not {new[key]}"
        for key in told
        if isinstance(old[key], (int, float, str)) and old[key] != new[key]
    ]
