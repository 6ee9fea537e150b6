"""Pipeline parallelism: a model cut into stages, and the schedule that keeps them busy."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    ScheduleDualPipeV,
    ScheduleZBVZeroBubble,
    _PipelineSchedule,
    get_schedule_class,
)

from ..configs import DeviceParameters, RunError
from ..metrics import unwrapped, whole
from ..world import World

Loss = Callable[[Any, Any], Tensor]
"""(output of the model, target) -> loss, shape (): the mean over the batch."""


FORWARD_ACTIONS = ("F", "SEND_F", "RECV_F", "UNSHARD", "RESHARD")


class Parts(NamedTuple):
    """What `apply_pipeline_parallel` returns for one model."""

    schedule: _PipelineSchedule
    model_parts: list[nn.Module]
    has_first_stage: bool
    has_last_stage: bool


def cut_model(
    model: nn.Module,
    pp_mesh: DeviceMesh,
    world: World,
    *,
    layers: str,
    first: Sequence[str],
    last: Sequence[str],
) -> Parts:
    """This rank's stages of `model` and the schedule of `DeviceParameters`.

    `layers` names a `ModuleList` that is dealt out evenly; each stage's holds its own under
    their names in the whole model. `first` and `last` name the modules that go before and
    after; elsewhere they are an `nn.Identity`. So names and `forward` stay those of the
    whole model, which must pass one tensor from module to module. Raises `RunError` where
    there are too few layers.
    """
    parameters = world.parameters
    schedule_class = get_schedule_class(parameters.pipeline_schedule)
    per_rank = parameters.stages_per_rank
    ranks, rank = pp_mesh.size(), pp_mesh.get_local_rank()
    count = ranks * per_rank
    total = len(model.get_submodule(layers))  # type: ignore[arg-type]
    if total < count:
        raise RunError(
            f"{total} layers cannot fill {count} pipeline stages "
            f"({parameters.pipeline_schedule} on {ranks} ranks). "
            f"Use at least {count} layers, or lower pipeline_parallel."
        )
    is_v = issubclass(schedule_class, (ScheduleZBVZeroBubble, ScheduleDualPipeV))
    indices = [rank, count - 1 - rank] if is_v else [rank + ranks * i for i in range(per_rank)]
    parts = [_part(model, index, count, layers, first, last) for index in indices]
    stages = [
        PipelineStage(part, index, count, world.device, group=pp_mesh.get_group())
        for part, index in zip(parts, indices, strict=True)
    ]
    number = microbatches(parameters, ranks)
    try:
        schedule = schedule_class(
            stages[0] if per_rank == 1 else stages,
            n_microbatches=number,
            loss_fn=_no_loss,
            # Torch would divide all that has been accumulated, at every call.
            scale_grads=False,
        )
    except ValueError as error:
        raise RunError(
            f"pipeline_microbatches={number} does not suit {parameters.pipeline_schedule} on "
            f"{ranks} ranks, which has {count} stages. Use a multiple of {count}."
        ) from error
    return Parts(schedule, parts, 0 in indices, count - 1 in indices)


def microbatches(parameters: DeviceParameters, ranks: int) -> int:
    """How many parts a batch is cut into; by default two for each rank."""
    return parameters.pipeline_microbatches or 2 * ranks


def _part(
    model: nn.Module,
    index: int,
    count: int,
    layers: str,
    first: Sequence[str],
    last: Sequence[str],
) -> nn.Module:
    part = copy.deepcopy(model)
    blocks = part.get_submodule(layers)._modules
    total = len(blocks)
    kept = range(total * index // count, total * (index + 1) // count)
    for position, name in enumerate(list(blocks)):
        if position not in kept:
            del blocks[name]  # Deleting from the ModuleList itself would renumber the others.
    for name in (*(first if index > 0 else ()), *(last if index < count - 1 else ())):
        parent, _, child = name.rpartition(".")
        setattr(part.get_submodule(parent), child, nn.Identity())
    return part


def present(model: nn.Module, plan: dict[str, Any]) -> dict[str, Any]:
    """The entries of a plan whose module this stage holds."""
    return {
        name: style
        for name, style in plan.items()
        if not isinstance(model.get_submodule(name), nn.Identity)
    }


def _no_loss(output: Any, target: Any) -> Tensor:
    raise RunError("A pipeline has no loss of its own. Call self.pipeline(..., loss=...).")


class Pipeline:
    """Runs one model's schedule; the loss reaches every rank."""

    def __init__(self, parts: Parts, pp_mesh: DeviceMesh) -> None:
        self.schedule = parts.schedule
        self.parts = parts.model_parts
        self.group = pp_mesh.get_group()
        stages = getattr(self.schedule, "_stages", None) or [self.schedule._stage]  # type: ignore[attr-defined]
        owner = stages[0].stage_index_to_group_rank[stages[0].num_stages - 1]
        self.has_first, self.has_last = parts.has_first_stage, parts.has_last_stage
        self.loss_rank = dist.get_global_rank(self.group, owner)
        self.device = stages[0].device
        self.shape: torch.Size | None = None

    def run(self, inputs: Tensor, target: Any, loss: Loss, *, window: int) -> Tensor:
        """The mean loss of the batch; where gradients are on, they have been added as well.

        Gradients are those of the loss divided by `window`, the batches that accumulate.
        All ranks of the pipeline take part, with the same batch.
        """
        count: int = self.schedule._n_microbatches
        if len(inputs) % count:
            raise RunError(
                f"A batch of {len(inputs)} cannot be cut into {count} pipeline microbatches. "
                "Set drop_last=True on the loader, and batch_size to a multiple of them."
            )
        if self.shape not in (None, inputs.shape):
            self._infer_shapes_again()
        self.shape = inputs.shape
        share = window * count if torch.is_grad_enabled() else count
        self.schedule._loss_fn = lambda output, target: loss(unwrapped(output), target) / share
        losses: list[Tensor] = []
        keywords = {"target": target, "losses": losses} if self.has_last else {}
        arguments = (inputs,) if self.has_first else ()
        if torch.is_grad_enabled():
            self.schedule.step(*arguments, return_outputs=False, **keywords)
        else:
            with forward_only(self.schedule):
                self.schedule.eval(*arguments, return_outputs=False, **keywords)
        value = torch.zeros((), device=self.device)
        if self.has_last:
            value += torch.stack([whole(part.detach()) for part in losses]).sum() * (share / count)
        dist.broadcast(value, self.loss_rank, group=self.group)
        return value

    def _infer_shapes_again(self) -> None:
        """A schedule keeps the shapes of its first batch, and hangs on others."""
        for name in ("_stage", "_stages"):
            for kind in ("forward", "backward"):
                if hasattr(self.schedule, f"{name}_{kind}_initialized"):
                    setattr(self.schedule, f"{name}_{kind}_initialized", False)


@contextmanager
def forward_only(schedule: _PipelineSchedule) -> Iterator[None]:
    """Leave the backward actions out: V schedules try them in `eval` as well."""
    order = getattr(schedule, "pipeline_order_with_comms", None)
    if order is None:
        yield
        return
    schedule.pipeline_order_with_comms = {  # type: ignore[attr-defined]
        rank: [forward for action in actions for forward in _forward_actions(action)]
        for rank, actions in order.items()
    }
    try:
        yield
    finally:
        schedule.pipeline_order_with_comms = order  # type: ignore[attr-defined]


def _forward_actions(action: Any) -> list[Any]:
    parts = action.sub_actions or (action,)
    return [part for part in parts if part.computation_type.value in FORWARD_ACTIONS]
