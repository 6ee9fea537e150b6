"""One rank's set-up and steps on fake tensors, and the figures that they give."""

import copy
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.optim import Optimizer
from torch.utils._pytree import tree_map_only

from .. import lifecycle, loop
from ..callbacks.callback import Callback, CallbackCollection
from ..configs import Axes, ConfigError, RunError
from ..configs.errors import place_of
from ..data import set_epoch
from ..materialize import named_tensors
from ..mesh import shard_view
from ..trainer import BaseTrainer
from .meter import Meter, size_of
from .report import CollectiveRow, Finding, Memory, Report, crosses, mesh_rows, size
from .stages import Boundary, BoundaryFound, give_shapes
from .weights import FillRecord, fake_memory

if TYPE_CHECKING:
    from ..trainer import DreamTrainer

NEEDS_VALUES = (DataDependentOutputException, DynamicOutputShapeException)


class Recorder(Callback):
    """Tells the meter of gradients, before they are cleared, and of optimizers."""

    def __init__(self) -> None:
        self.meter = Meter()
        self.gradients = 0

    def pre_optimizer_step(self, trainer: "DreamTrainer", optimizer: Optimizer) -> None:
        gradients = [p.grad for p in _held_by(optimizer) if p.grad is not None]
        self.gradients += size_of(gradients)
        for gradient in gradients:
            self.meter.hold(gradient, "gradients", again=True)
        self.meter.in_optimizer = True

    def post_optimizer_step(self, trainer: "DreamTrainer", optimizer: Optimizer) -> None:
        self.meter.in_optimizer = False


class Rehearsal:
    """A trainer's run as far as a dry run goes; what it finds goes into `report`."""

    def __init__(self, trainer: BaseTrainer, report: Report) -> None:
        self.trainer, self.report, self.recorder = trainer, report, Recorder()
        trainer.callbacks = CallbackCollection([self.recorder])
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)  # The mesh keeps real ranks.

    def run(self, boundary: Boundary | None, limit: int | None) -> None:
        """Set up, take two steps, and fill in the report."""
        self.set_up()
        recorder, meter = self.recorder, self.recorder.meter
        with self.fake, meter:
            batch = self._batch()
            for _, tensor in self._tensors():
                meter.hold(tensor, "model")
            for pipeline in self.trainer.pipelines.values():
                give_shapes(pipeline, boundary)
            self._step(batch)
            for tensor in self._optimizer_state():
                meter.hold(tensor, "optimizer", again=True)
            meter.restart()
            recorder.gradients = 0
            self._step(batch)
        if meter.reads:
            self.report.notes.append(
                f"a step reads {meter.reads} numbers from the device, and waits for them"
            )
        self._measure(meter, recorder.gradients, limit)

    def probe(self) -> Boundary:
        """What the first pipeline stage passes on."""
        self.set_up()
        with self.fake:
            for pipeline in self.trainer.pipelines.values():
                give_shapes(pipeline, None)
            try:
                self._step(self._batch())
            except BoundaryFound as found:
                return found.boundary
        raise RunError("training_step ran no pipeline. Call self.pipeline(...) in it.")

    def set_up(self) -> None:
        """The lifecycle's set-up, on fake tensors."""
        try:
            lifecycle.set_up(self.trainer, fill=self._fill, load=self._load)
        finally:
            if (world := getattr(self.trainer, "world", None)) is not None:
                node = self.report.local_world_size
                self.report.mesh = mesh_rows(world.axes, world.rank, node)

    def _fill(self, trainer: BaseTrainer) -> None:
        """`lifecycle.fill_memory` without memory, and without the checks that read values."""
        world = trainer.world
        models = lifecycle.named_parts(trainer)
        self.report.parameters = sum(
            parameter.numel() for _, model in models for parameter in model.parameters()
        )
        with self.fake:
            fake_memory(models, world.device)
            with torch.no_grad(), FillRecord(models) as record:
                for _ in lifecycle.each_stage(trainer):
                    trainer.init_weights()
        record.raise_if_unfilled()

    def _load(self, trainer: BaseTrainer) -> None:
        """Take the loaders; those of a single rank where there is too little data for all."""
        try:
            lifecycle.configure_data(trainer)
            return
        except RunError:
            raise
        except Exception as error:
            self.report.errors.append(explain(error))
        world = trainer.world
        trainer.world = copy.copy(world)
        trainer.world.axes = Axes()
        trainer.world.coordinate = dict.fromkeys(world.coordinate, 0)
        try:
            lifecycle.configure_data(trainer)
        finally:
            trainer.world = world
        self.report.notes.append("the batch is that of a run on one data rank")

    def _batch(self) -> Any:
        """The first training batch, read outside of the pretence and then faked."""
        with torch.utils._python_dispatch._disable_current_modes():
            set_epoch(self.trainer.train_loader, 0)
            batch = next(iter(self.trainer.train_loader), None)
        if batch is None:
            raise RunError("The training loader gave no batch: the epoch had no step.")
        return tree_map_only(Tensor, self.fake.from_tensor, batch)

    def _step(self, batch: Any) -> None:
        trainer = self.trainer
        trainer.batches_in_window = 1
        with trainer.autocast():
            loop.in_parallel(trainer, trainer.training_step)(batch, 0)
        trainer.global_step += 1

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        return named_tensors(lifecycle.named_parts(self.trainer))

    def _optimizer_state(self) -> Iterator[Tensor]:
        for optimizer in self.trainer.named_optimizers().values():
            for state in optimizer.state.values():
                yield from (value for value in state.values() if isinstance(value, Tensor))

    def _measure(self, meter: Meter, gradients: int, limit: int | None) -> None:
        models = [model for _, model in lifecycle.named_parts(self.trainer)]
        parameters = size_of(p for model in models for p in model.parameters())
        optimizer = size_of(self._optimizer_state())
        offloads = self.trainer.config.device_parameters.cpu_offload
        self.report.memory = memory = Memory(
            parameters=parameters,
            buffers=size_of(b for model in models for b in model.buffers()),
            gradients=gradients,
            optimizer=optimizer,
            activations=meter.peaks["activations"],
            gathered=meter.peaks["gathered"],
            peak=meter.fullest.total(),
            at_peak={kind: count for kind, count in meter.fullest.items() if count},
            host=parameters + gradients + optimizer if offloads else 0,
            limit=limit,
        )
        self.report.collectives = self._collectives(meter)
        if memory.fits is False:
            self.report.add(
                "memory",
                f"Rank {self.report.rank} needs {size(memory.device)} at the fullest moment, "
                f"but --memory is {size(limit or 0)}. Shard over more ranks, lower the batch "
                "size, or recompute activations (--ckpt-acts).",
            )

    def _collectives(self, meter: Meter) -> list[CollectiveRow]:
        groups = self._groups()
        rows: dict[tuple[str, str], CollectiveRow] = {}
        for collective, count in meter.counts.items():
            axis, ranks = groups.get(collective.group, ("world", range(self.report.world_size)))
            across = crosses(ranks, self.report.local_world_size)
            before = rows.get((axis, collective.operation))
            rows[axis, collective.operation] = CollectiveRow(
                axis,
                collective.operation,
                count + (before.count if before else 0),
                meter.bytes[collective] + (before.bytes if before else 0),
                across,
            )
        return [rows[key] for key in sorted(rows)]

    def _groups(self) -> dict[str, tuple[str, Sequence[int]]]:
        """Name of a process group -> the axis or axes it spans, and its ranks."""
        world = self.trainer.world
        views = [world.loss_mesh, world.mesh]
        if lifecycle.is_called("apply_fully_shard", self.trainer):
            views.insert(0, shard_view(world.mesh))
        return {
            str(group.group_name): (name, dist.get_process_group_ranks(group))
            for view in views
            for name in view.mesh_dim_names or ()
            for group in (view.get_group(name),)
        }


def explain(error: Exception) -> Finding:
    """An error in the words of a real run, with its place in the project."""
    place = place_of(error)
    if isinstance(error, ConfigError):
        return Finding(error.code, str(error), place)
    if isinstance(error, NEEDS_VALUES):
        name = str(error).splitlines()[0]
        return Finding(
            "values",
            f"The step needs the values of a tensor ({name}), and a dry run knows only shapes.",
            place,
        )
    text = " ".join(str(error).split())
    return Finding(type(error).__name__, text or repr(error), place)


def _held_by(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
