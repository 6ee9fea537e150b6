"""What a model is made of, as a table."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from ..configs.errors import is_count, refuse_unless
from ..lifecycle import named_parts
from .callback import RankZeroCallback

if TYPE_CHECKING:
    from rich.table import Table

    from ..trainer import BaseTrainer, DreamTrainer

WIDTH = 80
"""Columns of a table where there is no terminal."""

WRAPPERS = ("_checkpoint_wrapped_module", "_orig_mod")


class ModelSummary(RankZeroCallback):
    """Prints the modules of the models down to `depth`: parameters, memory, sharding.

    Motive: a layer that is frozen, of the wrong size or forgotten by a plan shows before the
    first step. Equal neighbours share a line. "here" is what rank 0 holds; of a pipeline the
    table shows its stages. `python train.py summarize` prints the same without training.
    """

    def __init__(self, depth: int = 2) -> None:
        refuse_unless(is_count(depth, 0), "depth", depth, "a whole number from 0")
        self.depth = depth

    def post_setup(self, trainer: "DreamTrainer") -> None:
        show(model_table(trainer, self.depth))


@dataclass(frozen=True)
class Row:
    """The parameters of a module and of those below it."""

    name: str
    kind: str
    total: int
    trained: int
    local: int
    local_bytes: int
    dtypes: str
    split: str
    """Mesh axes with the dims that they share out; without dims where these differ."""


def model_rows(trainer: "BaseTrainer", depth: int) -> list[Row]:
    """This rank's models, each with its modules down to `depth` below it."""
    return [
        row
        for name, model in named_parts(trainer)
        for row in _rows(name, [_inner(model)], depth, indent=0)
    ]


def model_table(trainer: "BaseTrainer", depth: int) -> "Table":
    """`model_rows` as a table."""
    from rich.table import Table

    of = " (its stages)" if trainer.world.axes.pp > 1 else ""
    title = f"models on mesh {trainer.world.axes}; here: rank {trainer.world.rank}{of}"
    table = Table(title=title, box=None, pad_edge=False, collapse_padding=True)
    table.add_column("module", no_wrap=True)
    table.add_column("kind", overflow="ellipsis")  # It is shortened first.
    for column in ("total", "trained", "here", "bytes"):
        table.add_column(column, justify="right", no_wrap=True)
    for column in ("dtype", "split"):
        table.add_column(column, no_wrap=True)
    for row in model_rows(trainer, depth):
        numbers = (row.total, row.trained, row.local)
        shown = (*map(short, numbers), short(row.local_bytes))
        table.add_row(row.name, row.kind, *shown, row.dtypes, row.split)
    return table


def show(table: "Table") -> None:
    """Print a table: as wide as the terminal, or 80 columns."""
    from rich.console import Console

    console = Console(highlight=False)
    console.print(table, width=None if console.is_terminal else WIDTH)


def short(number: int) -> str:
    """Four digits or fewer, and the thousands: 1.05M."""
    value, unit = float(number), ""
    for unit in ("", "k", "M", "G", "T"):
        if value < 999.5 or unit == "T":
            break
        value /= 1000
    return f"{value:.3g}{unit}"


def _rows(name: str, modules: list[nn.Module], depth: int, indent: int) -> Iterator[Row]:
    """The line of `modules`, which are equal, and those below the first of them."""
    parameters = [p for module in modules for p in module.parameters()]
    parts = [p._local_tensor if isinstance(p, DTensor) else p for p in parameters]
    splits = {_split(p): None for p in parameters}
    axes = dict(pair for split in splits for pair in split)
    kind = _kind(modules[0]).__name__
    yield Row(
        name=f"{' ' * indent}{name}",
        kind=kind if len(modules) == 1 else f"{len(modules)} x {kind}",
        total=sum(p.numel() for p in parameters),
        trained=sum(p.numel() for p in parameters if p.requires_grad),
        local=sum(part.numel() for part in parts),
        local_bytes=sum(part.nbytes for part in parts),
        dtypes="/".join(sorted({str(p.dtype).removeprefix("torch.") for p in parameters})),
        split=" ".join(axis if len(splits) > 1 else f"{axis}:{dim}" for axis, dim in axes.items()),
    )
    if not depth:
        return
    children = [(name, _inner(child)) for name, child in modules[0].named_children()]
    for _, equal in groupby(children, key=lambda child: _shape(child[1])):
        names, found = zip(*equal, strict=True)
        if any(True for child in found for _ in child.parameters()):
            label = names[0] if len(names) == 1 else f"{names[0]}..{names[-1]}"
            yield from _rows(label, list(found), depth - 1, indent + 1)


def _inner(module: nn.Module) -> nn.Module:
    """The module that the user wrote, without what wraps it."""
    if isinstance(module, DistributedDataParallel):
        module = module.module
    for name in WRAPPERS:
        module = getattr(module, name, module)
    return module


def _kind(module: nn.Module) -> type:
    """The class that the user wrote: `fully_shard` and `replicate` derive another one from it."""
    cls = type(module)
    own = cls.__bases__[-1]
    return own if cls.__name__ in (f"FSDP{own.__name__}", f"DDP{own.__name__}") else cls


def _shape(module: nn.Module) -> Any:
    """What modules that share a line have in common."""
    named = module.named_parameters()
    return _kind(module), [(n, p.shape, p.dtype, p.requires_grad, _split(p)) for n, p in named]


def _split(parameter: nn.Parameter) -> tuple[tuple[str, int], ...]:
    """The mesh axes that share a parameter out, each with the dim."""
    if not isinstance(parameter, DTensor):
        return ()
    axes = parameter.device_mesh.mesh_dim_names or ()
    pairs = zip(axes, parameter.placements, strict=False)
    # A dim that two axes share out is of a kind of placement of its own, but has a dim too.
    return tuple((axis, placement.dim) for axis, placement in pairs if hasattr(placement, "dim"))
