"""How a trainer comes to life. `set_up` is the order; the rest are its steps."""

import inspect
import os
import secrets
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from torch import nn

from .callbacks.callback import Events
from .checks import start_up
from .checks.replicas import raise_unless_replicas_agree
from .configs import HookError, RunError
from .contract import BY_NAME, callers, problems
from .materialize import FillCheck, materialize
from .optimizers import check_optimizers, checked_schedulers, name_optimizers, name_parameters
from .parallel.accumulate import GradientSync
from .parallel.compiler import configure_compiler
from .parallel.pipeline import Parts, Pipeline
from .seeding import SeededInit
from .streams import seed_everything, stream_seed
from .world import World

if TYPE_CHECKING:
    from .trainer import BaseTrainer

    Step = Callable[["BaseTrainer"], None]


def set_up(trainer: "BaseTrainer", fill: "Step | None" = None, load: "Step | None" = None) -> None:
    """World, shapes, parallelism, memory, weights, optimizers, data: in this order.

    Parallelism sees shapes only, so that no rank ever holds a whole model; optimizers
    come last, so that they hold the very tensors that are trained. All ranks take part.
    A dry run gives other steps for `fill_memory` and `configure_data`.
    """
    trainer.world = World(trainer.config.device_parameters)
    raise_on_problems(trainer)
    trainer.world.connect()
    trainer.events = Events(trainer.callbacks, trainer.world.rank)
    trainer.experiment = trainer.world.settle("experiment", trainer.name_experiment())
    _announce(trainer, "pre_configure")

    seed_everything(trainer.config.seed)
    make_models(trainer)
    _announce(trainer, "post_configure_models")
    cut_into_stages(trainer)
    for _ in each_stage(trainer):
        apply_parallelism(trainer)
    (fill or fill_memory)(trainer)

    _announce(trainer, "post_configure")
    _announce(trainer, "pre_setup")
    optimizers = trainer.configure_optimizers()
    check_optimizers(trainer, optimizers)
    trainer.optimizers = name_optimizers(trainer, optimizers)
    trainer.parameter_names = name_parameters(named_parts(trainer))
    if checks(trainer):
        all_of_them = [*optimizers.values(), *trainer.named_optimizers().values()]
        is_sharded = is_called("apply_fully_shard", trainer)
        start_up.check_trained(named_parts(trainer), all_of_them, trainer.world, is_sharded)
    trainer.schedulers = checked_schedulers(trainer.configure_schedulers())
    (load or configure_data)(trainer)
    trainer.configure_metrics()
    trainer.gradient_sync = GradientSync(model for _, model in named_parts(trainer))
    if trainer.pipelines and is_called("apply_replicate", trainer):
        trainer.gradient_sync.average_by_hand(trainer.world.mesh.get_group("dp_replicate"))
    _announce(trainer, "post_setup")


def checks(trainer: "BaseTrainer") -> bool:
    """Whether to look at more than what cannot run at all."""
    return trainer.config.training_parameters.startup_checks


def make_models(trainer: "BaseTrainer") -> None:
    """Shapes on the meta device, and a warning where the hook writes to them."""
    with torch.device("meta"), start_up.MetaWrites() as writes:
        trainer.configure_models()
    if checks(trainer):
        writes.warn(list(trainer.named_models().items()), trainer.world)


def cut_into_stages(trainer: "BaseTrainer") -> None:
    """Where pp is in use, let the hook cut the models and keep this rank's stages."""
    trainer.pipelines = {}
    trainer.stages = [trainer.named_models()]
    if not is_called("apply_pipeline_parallel", trainer):
        return
    pp_mesh = trainer.world.mesh["pp"]
    cut = {name: Parts(*parts) for name, parts in trainer.apply_pipeline_parallel(pp_mesh).items()}
    whole = {name: model for name, model in trainer.named_models().items() if name not in cut}
    most = max(len(parts.model_parts) for parts in cut.values())
    if most > 1 and (whole or len(cut) > 1):
        raise RunError(
            f"{trainer.config.device_parameters.pipeline_schedule} gives each rank several "
            "stages, which is supported for a trainer of one model. Use GPipe or 1F1B."
        )
    trainer.pipelines = {name: Pipeline(parts, pp_mesh) for name, parts in cut.items()}
    trainer.stages = [
        {name: parts.model_parts[index] for name, parts in cut.items()} | whole
        for index in range(most)
    ]


def each_stage(trainer: "BaseTrainer") -> Iterator[None]:
    """Make each of this rank's stages the trainer's model in turn, then all of them."""
    for stage in trainer.stages:
        for name, model in stage.items():
            setattr(trainer, name, model)
        yield
    if len(trainer.stages) > 1:
        for name in trainer.pipelines:
            setattr(trainer, name, nn.ModuleList(stage[name] for stage in trainer.stages))


def apply_parallelism(trainer: "BaseTrainer") -> None:
    """Tensor parallel, checkpointing, compile, shard or replicate: each wraps the one before."""
    world, checked = trainer.world, checks(trainer)

    def models() -> list[tuple[str, nn.Module]]:
        return list(trainer.named_models().items())

    if is_called("apply_tensor_parallel", trainer):
        # A plan may name more than one stage of a pipeline holds.
        exact = checked and not trainer.pipelines
        with start_up.every_key_matches(models()) if exact else nullcontext():
            trainer.apply_tensor_parallel(world.mesh["tp"])
        if checked:
            start_up.raise_if_indivisible(models(), world.axes.tp)
    if is_called("apply_activation_checkpointing", trainer):
        trainer.apply_activation_checkpointing()
    if is_called("apply_compile", trainer):
        configure_compiler(world)
        trainer.apply_compile()
    if is_called("apply_fully_shard", trainer):
        config = world.fsdp_config()
        if checked:
            start_up.raise_if_sharded_early(models())
        trainer.apply_fully_shard(config)
        if checked:
            start_up.raise_unless_sharded(models(), config["mesh"], world)
    if is_called("apply_replicate", trainer):
        trainer.apply_replicate(world.mesh["dp_replicate"])
        if checked:
            start_up.raise_unless_replicated(models())


def named_parts(trainer: "BaseTrainer") -> list[tuple[str, nn.Module]]:
    """Every model of this rank under its attribute's name; stages of one model share it."""
    return [item for stage in trainer.stages for item in stage.items()]


def fill_memory(trainer: "BaseTrainer") -> None:
    """Shapes -> garbage -> values, and proof that nothing was left out."""
    world, models = trainer.world, named_parts(trainer)
    offloads = trainer.config.device_parameters.cpu_offload and is_called(
        "apply_fully_shard", trainer
    )
    materialize(models, torch.device("cpu") if offloads else world.device)
    check = FillCheck(models)
    seed_everything(trainer.config.seed)
    with torch.no_grad(), SeededInit(models, trainer.config.seed):
        for _ in each_stage(trainer):
            trainer.init_weights()
    check.raise_if_unfilled()
    if checks(trainer):
        raise_unless_replicas_agree(models, world)
    seed_everything(stream_seed(trainer.config.seed, world.coordinate, world.axes.sizes))


def configure_data(trainer: "BaseTrainer") -> None:
    """Take the loaders."""
    loaders = trainer.configure_dataloaders()
    if not isinstance(loaders, (tuple, list)) or len(loaders) != 2:
        raise RunError(
            f"configure_dataloaders returned {type(loaders).__name__}. "
            "Return (training loader, validation loader); the second may be None."
        )
    trainer.train_loader, trainer.val_loader = loaders
    same = trainer.val_loader is trainer.train_loader
    if same and getattr(trainer.train_loader, "persistent_workers", False):
        raise RunError(
            "configure_dataloaders returned one object as both loaders; with "
            "persistent_workers=True a validation would end the training epoch. "
            "Build a second loader."
        )
    if checks(trainer):
        epochs = trainer.config.training_parameters.epochs
        start_up.warn_of_fixed_order(trainer.train_loader, epochs, trainer.world)


def is_called(hook: str, trainer: "BaseTrainer") -> bool:
    """Whether the contract calls a parallelism hook on this trainer's mesh."""
    parameters, axes = trainer.config.device_parameters, trainer.world.axes
    return bool(callers(BY_NAME[hook], parameters, axes.sizes))


def raise_on_problems(trainer: "BaseTrainer") -> None:
    """Raise `HookError` with everything that the contract finds wrong, before any work."""
    cls = type(trainer)
    found = problems(
        trainer.config.device_parameters,
        trainer.world.axes.sizes,
        cls.defined_hooks(),
        cls.__name__,
    )
    if found:
        text = "\n".join(f"{problem} [{problem.code}]" for problem in found)
        raise HookError(text, _place(cls))


def _place(cls: type) -> str:
    """Where `cls` is defined, as a line to put below a message; empty for no file."""
    try:
        place = f"{inspect.getsourcefile(cls)}:{inspect.getsourcelines(cls)[1]}"
    except (OSError, TypeError):  # Typed into an interpreter.
        return ""
    return f"\n  --> {place}, class {cls.__name__}"


def name_run() -> str:
    """The launcher's name for it where one was given, else when it began and a part of chance."""
    given = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    if given != "none" and not _is_uuid(given):  # `--standalone` makes one up.
        return given
    if job := os.environ.get("SLURM_JOB_ID"):  # Keeps its number when it is requeued.
        return f"slurm-{job}"
    return f"{time.strftime('%Y-%m-%d-%H%M')}-{secrets.token_hex(2)}"


def _is_uuid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


def _announce(trainer: "BaseTrainer", event: str) -> None:
    for handler in getattr(trainer.events, event):
        handler(trainer)
