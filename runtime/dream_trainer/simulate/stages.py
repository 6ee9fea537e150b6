"""Pipeline stages without their neighbours: shapes that other ranks would have sent."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining._utils import InferenceMode, _StageMeta, extract_tensor_metas

from ..configs import RunError
from ..parallel.pipeline import Pipeline


class Boundary(NamedTuple):
    """One microbatch of what a stage passes on."""

    shape: tuple[int, ...]
    dtype: torch.dtype


class BoundaryFound(BaseException):
    """Ends the search at the first stage's output."""

    def __init__(self, boundary: Boundary) -> None:
        self.boundary = boundary


def give_shapes(pipeline: Pipeline, boundary: Boundary | None) -> None:
    """Let the schedule of `pipeline` start without hearing from its neighbours.

    Every stage is taken to receive and to pass on tensors like `boundary`; None ends
    the run with `BoundaryFound` when the first stage has computed it.
    """
    schedule: Any = pipeline.schedule
    schedule._warmup_p2p = lambda *_: None
    for stage in getattr(schedule, "_stages", None) or [schedule._stage]:
        stage._prepare_forward_infra = _Preparation(stage, boundary)


class _Preparation:
    """What a stage does before its first microbatch."""

    def __init__(self, stage: Any, boundary: Boundary | None) -> None:
        self.stage, self.boundary = stage, boundary
        self.original = stage._prepare_forward_infra

    def __call__(
        self, num_microbatches: int, args: Any, kwargs: Any = None, has_backward: bool = False
    ) -> None:
        stage = self.stage
        inputs = tuple(args) if stage.is_first else (self._received(has_backward),)
        outputs = self._outputs(inputs)
        found = Boundary(tuple(outputs[0].shape), outputs[0].dtype)
        if self.boundary is None:
            raise BoundaryFound(found)
        if not stage.is_last and found != self.boundary:
            raise RunError(
                f"Pipeline stage {stage.stage_index} passes on {found}, the first one "
                f"{self.boundary}. A dry run can try stages that pass on tensors of one shape."
            )
        stage._user_meta = _StageMeta(
            inputs=extract_tensor_metas(inputs),
            outputs=extract_tensor_metas(outputs),
            input_grads=None,
            output_grads=None,
        )
        stage._inference_mode = InferenceMode.STATIC
        self.original(num_microbatches, args, kwargs, has_backward=has_backward)

    def _received(self, has_backward: bool) -> Tensor:
        if self.boundary is None:
            raise RunError("The first pipeline rank does not hold the first stage.")
        shape, dtype = self.boundary
        return torch.empty(shape, dtype=dtype, requires_grad=has_backward)

    def _outputs(self, inputs: tuple[Any, ...]) -> tuple[Tensor, ...]:
        module = self.stage.submod
        output = module(*inputs)
        outputs = output if isinstance(output, tuple) else (output,)
        for part in module.modules():
            if isinstance(part, FSDPModule):
                part.reshard()
        return outputs
