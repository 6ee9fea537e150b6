"""Shapes -> garbage -> values: give meta tensors memory, and prove that all of it was filled."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from .configs import RunError
from .seeding import NamedParts

_BYTES = (torch.bool, torch.uint8, torch.int8)
_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)


def materialize(models: NamedParts, device: torch.device) -> None:
    """Move meta tensors to `device`, poisoned: floats with NaN, integers with an extreme.

    Tied parameters and shared buffers stay tied.
    """
    shared: dict[int, Tensor] = {}
    originals: list[Tensor] = []  # keeps ids from being reused

    def poisoned(tensor: Tensor) -> Tensor:
        if not tensor.is_meta:
            return tensor.to(device)
        if isinstance(tensor, nn.Parameter):
            return _poison(torch.empty_like(tensor, device=device))
        if id(tensor) not in shared:
            originals.append(tensor)
            shared[id(tensor)] = _poison(torch.empty_like(tensor, device=device))
        return shared[id(tensor)]

    # Swapping keeps the Parameter objects, hence their ties; the default makes new ones.
    swap = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        for _, model in models:
            model._apply(poisoned)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(swap)


def _poison(tensor: Tensor) -> Tensor:
    local = _local(tensor)
    if local.dtype in _BYTES:
        local.copy_(_pattern(local))
    else:
        local.fill_(_sentinel(local.dtype))
    return tensor


def _sentinel(dtype: torch.dtype) -> float | int:
    if dtype.is_floating_point or dtype.is_complex:
        return float("nan")
    return torch.iinfo(dtype).max if dtype in _UNSIGNED else torch.iinfo(dtype).min


def _pattern(tensor: Tensor) -> Tensor:
    """What no mask looks like: booleans and bytes have no single value to spare."""
    numbers = torch.arange(tensor.numel(), device=tensor.device).view(tensor.shape)
    return (numbers * 37 % 101 % 3 == 0).to(tensor.dtype)


class FillCheck:
    """Finds what `init_weights` left as garbage: whatever still holds its poison.

    Booleans and bytes have to hold the very pattern, unwritten by the version counter too.
    """

    def __init__(self, models: NamedParts) -> None:
        self.models = models
        self.versions = {
            name: (tensor, _local(tensor)._version) for name, tensor in named_tensors(models)
        }

    def raise_if_unfilled(self) -> None:
        """Raise `RunError` naming every parameter and buffer that holds garbage."""
        unfilled = [name for name, tensor in named_tensors(self.models) if self._bad(name, tensor)]
        if unfilled:
            raise RunError(
                f"init_weights left {len(unfilled)} tensors uninitialised: "
                f"{shortened(unfilled)}. Fill every parameter and every buffer there, those "
                "that no checkpoint holds (persistent=False) included."
            )

    def _bad(self, name: str, tensor: Tensor) -> bool:
        local = _local(tensor)
        if tensor.is_meta or not local.numel():
            return tensor.is_meta
        if local.is_floating_point() or local.is_complex():
            return bool(local.isnan().any())
        if local.dtype not in _BYTES:
            return bool((local == _sentinel(local.dtype)).any())
        before, version = self.versions.get(name, (None, 0))
        unwritten = before is tensor and version == local._version
        return unwritten and torch.equal(local, _pattern(local))


def named_tensors(models: NamedParts) -> Iterator[tuple[str, Tensor]]:
    """Every parameter and buffer once, under its fully qualified name."""
    for root, model in models:
        yield from model.named_parameters(prefix=root)
        yield from model.named_buffers(prefix=root)


def _local(tensor: Tensor) -> Tensor:
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor.detach()


def shortened(names: list[str], shown: int = 8) -> str:
    """The names as a list for a message."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
