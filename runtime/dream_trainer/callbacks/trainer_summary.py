"""What runs where and how, as a table."""

from typing import TYPE_CHECKING, Any

from ..lifecycle import is_called
from .callback import RankZeroCallback

if TYPE_CHECKING:
    from rich.table import Table

    from ..trainer import BaseTrainer, DreamTrainer

WIDTH = 80
"""Columns of the table where there is no terminal."""


class TrainerSummary(RankZeroCallback):
    """Prints processes, mesh, precision, batches, lengths and optimizers before training.

    Motive: what was resolved is not what was written ("auto", modifiers, defaults), and a run
    of the wrong global batch looks like any other. `python train.py summarize` prints the
    same without training.
    """

    def pre_fit(self, trainer: "DreamTrainer") -> None:
        from rich.console import Console

        console = Console(highlight=False)
        table = trainer_table(trainer, trainer.config)
        console.print(table, width=None if console.is_terminal else WIDTH)


def trainer_table(trainer: "BaseTrainer", config: Any) -> "Table":
    """`trainer_rows` as a table."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"run {trainer.experiment}", box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in trainer_rows(trainer, config).items():
        table.add_row(name, Text(text))  # Brackets are no markup.
    return table


def trainer_rows(trainer: "BaseTrainer", config: Any) -> dict[str, str]:
    """What `config` comes to on this trainer, which is set up."""
    world, device, training = trainer.world, config.device_parameters, config.training_parameters
    rows = {
        "processes": f"{world.world_size} on {world.device.type}, {_hosts(world.hosts)}",
        "mesh": str(world.axes),
        "precision": f"{device.param_dtype}, reduced in {device.reduce_dtype}",
        "model": ", ".join(_switches(trainer, device)) or "as it is",
        "batch": _batch(trainer, config),
        "length": _length(training),
    }
    for name, optimizer in trainer.optimizers.items():
        groups = [
            f"lr {group['lr']:.3g}, weight decay {group.get('weight_decay', 0):.3g}: "
            f"{sum(p.numel() for p in group['params']):,} parameters"
            for group in optimizer.param_groups
        ]
        scheduler = trainer.schedulers.get(optimizer)
        after = f" with {type(scheduler).__name__}" if scheduler is not None else ""
        rows[name] = "\n".join([f"{type(optimizer).__name__}{after}", *groups])
    callbacks = trainer.default_callbacks() if config.callbacks is None else config.callbacks
    names = [type(callback).__name__ for callback in (*callbacks, *config.extra_callbacks)]
    rows["callbacks"] = ", ".join(dict.fromkeys(names)) or "none"
    return rows


def _hosts(names: list[str]) -> str:
    shown = ", ".join(names[:3]) + ", ..." * (len(names) > 3)
    return shown if len(names) == 1 else f"{len(names)} hosts: {shown}"


def _switches(trainer: "BaseTrainer", device: Any) -> list[str]:
    hooks = {
        "apply_fully_shard": "sharded",
        "apply_replicate": "replicated",
        "apply_activation_checkpointing": "activations recomputed",
    }
    told = [text for hook, text in hooks.items() if is_called(hook, trainer)]
    told += ["compiled"] if device.compile_model else []
    return told + (["offloaded to host memory"] if device.cpu_offload else [])


def _batch(trainer: "BaseTrainer", config: Any) -> str:
    """The global batch as the product that it is."""
    size = getattr(trainer.train_loader, "batch_size", None) or getattr(config, "batch_size", None)
    ranks, window = trainer.world.dp_size, config.training_parameters.gradient_accumulation_steps
    factors = f"{ranks} data rank{'s' * (ranks > 1)} x {window} accumulated"
    return f"{size} x {factors} = {size * ranks * window}" if size else f"the loader's x {factors}"


def _length(training: Any) -> str:
    epochs, steps = training.epochs, training.train_steps_per_epoch
    told = [f"{epochs:g} epoch{'s' * (epochs != 1)}"] if epochs != float("inf") else []
    told += [f"{steps} steps each"] if steps else []
    told += [f"{training.max_steps} steps at most"] if training.max_steps else []
    every = training.val_every_n_steps
    told.append(f"validated every {every} steps" if every else "validated after each epoch")
    return ", ".join(told)
