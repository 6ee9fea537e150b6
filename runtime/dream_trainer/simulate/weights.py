"""Weights without memory: meta tensors become fake ones, and who fills them is recorded."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from ..configs import RunError
from ..materialize import named_tensors, shortened
from ..seeding import DRAWS, NamedParts
from .meter import local_part


def fake_memory(models: NamedParts, device: torch.device) -> None:
    """Give meta tensors fake memory on `device`; call it in a `FakeTensorMode`.

    Unlike real tensors, fake ones cannot be swapped into a Parameter: these are new
    ones, and what was tied is tied again.
    """
    made: dict[int, Tensor] = {}
    originals: list[Tensor] = []  # keeps ids from being reused

    def faked(tensor: Tensor) -> Tensor:
        if not tensor.is_meta:
            return tensor
        if id(tensor) not in made:
            originals.append(tensor)
            fake = torch.empty_like(tensor, device=device)
            is_parameter = isinstance(tensor, nn.Parameter)
            made[id(tensor)] = (
                nn.Parameter(fake, requires_grad=tensor.requires_grad) if is_parameter else fake
            )
        return made[id(tensor)]

    modules = [module for _, model in models for module in model.modules()]
    for module in modules:
        for table in (module._parameters, module._buffers):
            for name, tensor in table.items():
                if tensor is not None:
                    table[name] = faked(tensor)  # type: ignore[assignment]
    for module in modules:
        if isinstance(module, FSDPModule):
            for group in module._get_fsdp_state()._fsdp_param_groups:
                for parameter in group.fsdp_params:
                    parameter.reset_sharded_param()


class FillRecord(TorchDispatchMode):
    """Records what `init_weights` writes. Random fills reach this rank's part directly.

    On fake tensors no value can tell what was left out; that nothing ever wrote to a
    tensor's memory does.
    """

    def __init__(self, models: NamedParts) -> None:
        super().__init__()
        self.models = models
        self.written: set[int] = set()
        self.before = {name: _place(tensor) for name, tensor in named_tensors(models)}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func._schema.is_mutable:
            for target in (*args[:1], kwargs.get("out")):
                parts = target if isinstance(target, (list, tuple)) else (target,)
                self.written |= {_place(part) for part in parts if isinstance(part, Tensor)}
        if func in DRAWS and isinstance(args[0], DTensor):
            func(args[0]._local_tensor, *args[1:], **kwargs)
            return args[0]
        return func(*args, **kwargs)

    def raise_if_unfilled(self) -> None:
        """Raise `RunError` naming every parameter and buffer that nothing was written to."""
        unfilled = [
            name
            for name, tensor in named_tensors(self.models)
            if self.before.get(name) == _place(tensor) and _place(tensor) not in self.written
        ]
        if unfilled:
            raise RunError(
                f"init_weights left {len(unfilled)} tensors uninitialised: "
                f"{shortened(unfilled)}. Fill every parameter and every buffer there, those "
                "that no checkpoint holds (persistent=False) included."
            )


def _place(tensor: Tensor) -> int:
    return int(local_part(tensor).untyped_storage()._cdata)
