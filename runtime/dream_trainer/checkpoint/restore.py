"""Going on with a run: which checkpoint, whether it is whole, and on which mesh."""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.tensor import DTensor

from ..configs import CheckpointParameters, RunError
from ..materialize import shortened
from ..position import Position
from ..streams import RandomState
from .agreement import first_failure
from .continuation import continue_data, continue_randomness, differences
from .manifest import (
    MANIFEST,
    NAME,
    Checkpoint,
    Manifest,
    checkpoints,
    folder_of,
    set_aside,
    unfinished,
)
from .state import (
    CALLBACKS,
    OPTIMIZERS,
    OWN,
    SHARED,
    kinds,
    load_models,
    load_optimizers,
    model_state,
    named_callbacks,
    optimizer_template,
    rank_key,
)
from .store import Store

if TYPE_CHECKING:
    from ..trainer import DreamTrainer

COUNTERS = ("epoch", "global_step", "epoch_steps", "epoch_is_trained", "validated_step")
"""What says how far the loop is: attributes of the trainer."""


def is_restarted() -> bool:
    """Whether torchrun or Slurm has started this job again."""
    counts = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")
    return any(int(os.environ.get(name, 0)) > 0 for name in counts)


def restore(trainer: "DreamTrainer", parameters: CheckpointParameters) -> None:
    """Go on from the newest checkpoint that verifies, where the run is to go on.

    Raises `RunError` where there is none that was asked for, and where a new run would mix
    with the checkpoints of an old one. All ranks take part.
    """
    store = Store(folder_of(parameters.root_dir, trainer.experiment))
    mode = parameters.auto_resume
    goes_on = parameters.resume is not None or mode == "always"
    goes_on = goes_on or (mode == "restarts" and is_restarted())
    found: list[Checkpoint] = trainer.world.broadcast(
        _clean(store, goes_on) if trainer.world.is_rank_zero else None
    )
    if not goes_on:
        if found and parameters.enable:
            raise RunError(
                f"{store.url()} holds step {found[0].manifest.step} of an earlier run. "
                f"Go on with --resume {trainer.experiment}, or name another experiment."
            )
        return
    damaged = []
    for checkpoint in found:
        problems = verify_together(trainer, checkpoint)
        if not problems:
            load(trainer, checkpoint)
            break
        damaged.append(checkpoint)
        _say(trainer, f"warning: {checkpoint.url} is skipped: {shortened(problems)}")
    else:
        if parameters.resume is not None:
            raise RunError(
                f"No checkpoint of {parameters.resume!r} can be resumed in {store.url()}. "
                "Check the name and checkpoint_parameters.root_dir."
            )
    if trainer.world.is_rank_zero:
        for checkpoint in damaged:
            checkpoint.set_aside()


def _clean(store: Store, goes_on: bool) -> list[Checkpoint]:
    """The finished checkpoints, newest first; what a kill left over is told of and removed."""
    if goes_on:
        for name in unfinished(store):
            place = f"warning: {store.url(name)}"
            if NAME.fullmatch(name) and MANIFEST in store.files(name):
                print(f"{place} is skipped: {MANIFEST} cannot be read", file=sys.stderr)
                set_aside(store, name)
                continue
            print(f"{place} was never finished: removed", file=sys.stderr)
            store.remove(name)
    return checkpoints(store)


def verify_together(trainer: "DreamTrainer", checkpoint: Checkpoint) -> list[str]:
    """What is wrong with a checkpoint; every rank reads its share of the files."""
    world = trainer.world
    own = checkpoint.problems(world.rank, world.world_size)
    if world.world_size == 1:
        return own
    everyone: list[list[str]] = [[] for _ in range(world.world_size)]
    dist.all_gather_object(everyone, own)
    return sorted({problem for problems in everyone for problem in problems})


def load(trainer: "DreamTrainer", checkpoint: Checkpoint) -> None:
    """Everything that `checkpoint` holds, onto this mesh; one line says what is not exact."""
    manifest = checkpoint.manifest
    metadata = checkpoint.store.reader(checkpoint.name).read_metadata()
    same_mesh = manifest.axes == trainer.world.axes.sizes
    own = rank_key(_predecessor(trainer, manifest))
    template = {**model_state(trainer), **optimizer_template(trainer, metadata)}
    callbacks, news = _callback_template(trainer, metadata)
    template |= {key: value for state in callbacks.values() for key, value in state.items()}
    template |= {SHARED: None, own: None}
    raise_unless_complete(trainer, template, metadata)
    read(checkpoint, template)

    shared = template[SHARED]
    _raise_unless_alike(kinds(trainer), shared["kinds"])
    notes = news + differences(trainer, shared)
    load_models(trainer, template)
    load_optimizers(trainer, template, shared["optimizers"])
    for optimizer, scheduler in trainer.schedulers.items():
        name = next(n for n, o in trainer.optimizers.items() if o is optimizer)
        scheduler.load_state_dict(shared["schedulers"][name])
    for name, state in callbacks.items():
        prefix = f"{CALLBACKS}.{name}."
        values = {key.removeprefix(prefix): template[key] for key in state}
        named_callbacks(trainer)[name].load_state_dict(values)
    for counter in COUNTERS:
        setattr(trainer, counter, manifest.progress[counter])
    trainer.start_step = trainer.global_step
    trainer.logged |= manifest.metrics
    rank_state = template[own]
    notes += continue_data(
        trainer, Position.from_dict(rank_state["position"]), manifest, shared["batch_size"]
    )
    notes += continue_randomness(trainer, RandomState(**rank_state["random"]), same_mesh)
    mesh = "" if same_mesh else f", saved on {manifest.world_size} ranks"
    _say(trainer, f"resume: step {manifest.step} from {checkpoint.url}{mesh}")
    for note in notes:
        _say(trainer, f"resume: {note}")


def _predecessor(trainer: "DreamTrainer", manifest: Manifest) -> int:
    """The rank that saved what this one goes on from: of as many data ranks, its like."""
    world, axes = trainer.world, manifest.axes
    if axes == world.axes.sizes:
        return world.rank
    is_split_alike = manifest.progress["dp_size"] == world.dp_size
    own = world.dp_rank % world.axes.dp_size  # Each replica group saves for itself.
    return own * axes["cp"] * axes["tp"] if is_split_alike else 0


def read(checkpoint: Checkpoint, template: dict[str, Any]) -> None:
    """Fill `template`; each rank reads its own part. Raises `RunError` where DCP cannot."""
    try:
        dcp.load(
            template,
            storage_reader=checkpoint.store.reader(checkpoint.name),
            planner=DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False),
        )
    except CheckpointException as error:
        rank, first = first_failure(error)
        raise RunError(f"{checkpoint.url} cannot be read: rank {rank}: {first}") from error


def raise_unless_complete(
    trainer: "DreamTrainer", template: Mapping[str, Any], metadata: Metadata
) -> None:
    """Raise `RunError` where the checkpoint and the trainer hold different things."""
    saved = metadata.state_dict_metadata
    if missing := [key for key in template if key not in saved]:
        raise RunError(
            f"The checkpoint lacks {shortened(missing)}. The model or its optimizers have "
            "changed: start anew with --init-from."
        )
    for key, value in template.items():
        held = saved[key]
        shape = getattr(value, "shape", None)
        if isinstance(held, TensorStorageMetadata) and shape != held.size:
            raise RunError(
                f"{key} has shape {tuple(shape or ())}, in the checkpoint {tuple(held.size)}. "
                "The model has changed: start anew with --init-from."
            )
    needed = {key for key in saved if key.startswith(OPTIMIZERS) or not key.startswith(OWN)}
    unread = needed - set(template)
    if group := trainer.world.pp_group:  # Each stage reads its own.
        everyone: list[set[str]] = [set() for _ in range(group.size())]
        dist.all_gather_object(everyone, unread, group=group)
        unread = set.intersection(*everyone)
    if unread:
        raise RunError(
            f"The checkpoint holds {shortened(sorted(unread))}, which nothing here takes up. "
            "The model or its optimizers have changed: start anew with --init-from."
        )


def _raise_unless_alike(ours: Mapping[str, str], theirs: Mapping[str, str]) -> None:
    """Raise `RunError` where optimizers or schedules are of other classes than the saved ones."""
    for name in sorted(ours.keys() | theirs.keys()):
        own, saved = ours.get(name, "not there"), theirs.get(name, "not there")
        if own != saved:
            raise RunError(
                f"{name} is {own}, in the checkpoint {saved}. Build the same again, or start "
                "anew with --init-from."
            )


def _callback_template(
    trainer: "DreamTrainer", metadata: Metadata
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """What is to be read for each callback, and which ones begin anew."""
    found, notes = {}, []
    for name, callback in named_callbacks(trainer).items():
        prefix = f"{CALLBACKS}.{name}."
        own = callback.state_dict()
        # Other stages of a pipeline hold tensors of their own.
        all_own = trainer.world.axes.pp == 1 or not own
        held = {
            key: value
            for key, value in metadata.state_dict_metadata.items()
            if key.startswith(prefix)
            and (all_own or key.removeprefix(prefix) in own or not _is_tensor(value))
        }
        if held:
            found[name] = {
                key: _room(own.get(key.removeprefix(prefix)), value) for key, value in held.items()
            }
        elif own:
            notes.append(f"{name} is not in the checkpoint: it begins anew")
    return found, notes


def _room(own: Any, held: Any) -> Any:
    """What is read into: the callback's own value, or else memory for the whole tensor."""
    if not _is_tensor(held):
        return own
    if isinstance(own, DTensor) or (isinstance(own, Tensor) and own.shape == held.size):
        return own
    return torch.empty(held.size, dtype=held.properties.dtype)


def _is_tensor(held: Any) -> bool:
    return isinstance(held, TensorStorageMetadata)


def _say(trainer: "DreamTrainer", text: str) -> None:
    if trainer.world.is_rank_zero:
        stream = sys.stderr if text.startswith("warning") else sys.stdout
        print(text, file=stream, flush=True)
