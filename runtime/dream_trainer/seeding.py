"""Weights: the same ones on every mesh, and how to tell whether two are."""

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten

NamedParts = Sequence[tuple[str, nn.Module]]
"""Models with the names of their attributes; the stages of one model share its name."""

DRAWS = {
    aten.normal_.default,
    aten.uniform_.default,
    aten.bernoulli_.float,
    aten.bernoulli_.Tensor,
    aten.exponential_.default,
    aten.log_normal_.default,
    aten.cauchy_.default,
    aten.geometric_.default,
    aten.random_.default,
    aten.random_.to,
    getattr(aten.random_, "from"),
}


class SeededInit(TorchDispatchMode):
    """Makes in-place random fills independent of the mesh.

    A parameter or buffer draws from a generator of its own, seeded by (`seed`, its fully
    qualified name): what one module draws never shifts another's, and what an initialiser
    draws into scratch memory comes from the stream of the tensor that it fills. A sharded
    tensor is drawn whole, one at a time, and each rank keeps its part, without
    communication. (DTensor's own random operators fill every shard with the same numbers
    on CPU.) A write into a slice of a sharded tensor, which DTensor would make to a copy,
    reaches the tensor.
    """

    def __init__(self, models: NamedParts, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.generators: dict[str, torch.Generator] = {}
        self.names: dict[int, str] = {}
        self.current = ""
        self.parts: dict[int, tuple[Any, Any, Any, Any, Any]] = {}
        for root, model in models:
            for kind in (model.named_parameters, model.named_buffers):
                for name, tensor in kind(prefix=root):
                    self.names[_place(tensor)] = clean(name)
        self.names.pop(0, None)  # tensors without elements

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        first = args[0] if args and isinstance(args[0], Tensor) else None
        if first is None:
            return func(*args, **kwargs)
        # Scratch tensors of an initialiser draw from the stream of the one it fills.
        self.current = self.names.get(_place(first), self.current)
        if func not in DRAWS:
            return self._run(func, first, args, kwargs)
        target, *rest = args
        if kwargs.get("generator") is None and self.current:
            kwargs = {**kwargs, "generator": self._generator(self.current, target.device)}
        if not isinstance(target, DTensor):
            return func(target, *rest, **kwargs)
        full = torch.empty(target.shape, dtype=target.dtype, device=target.device)
        func(full, *rest, **kwargs)
        return _keep_part(target, full)

    def _run(self, func: Any, first: Tensor, args: Any, kwargs: Any) -> Any:
        """An operator that draws nothing. A write into a slice of a sharded tensor reaches it."""
        if func._schema.is_mutable and id(first) in self.parts:
            _, base, view, view_args, view_kwargs = self.parts[id(first)]
            full = base.full_tensor()
            func(view(full, *view_args, **view_kwargs), *args[1:], **kwargs)
            _keep_part(base, full)
        out = func(*args, **kwargs)
        is_apart = isinstance(out, DTensor) and _place(out) != _place(first)
        if func.is_view and isinstance(first, DTensor) and is_apart:
            self.parts[id(out)] = (out, first, func, args[1:], kwargs)
        return out

    def _generator(self, name: str, device: torch.device) -> torch.Generator:
        if name not in self.generators:
            generator = torch.Generator(device)
            self.generators[name] = generator.manual_seed(crc32(f"{self.seed}/{name}".encode()))
        return self.generators[name]


def _place(tensor: Tensor) -> int:
    """The address of a tensor's memory: `weight.data` and `weight` share it."""
    local = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
    return local.untyped_storage().data_ptr() if not local.is_meta else 0


def _keep_part(target: DTensor, full: Tensor) -> DTensor:
    part = distribute_tensor(full, target.device_mesh, target.placements, src_data_rank=None)
    target.copy_(part)
    return target


def clean(name: str) -> str:
    """A qualified name without what wrappers add to it."""
    for wrapper in ("_checkpoint_wrapped_module.", "_orig_mod."):
        name = name.replace(wrapper, "")
    return name


_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def fingerprint(tensor: Tensor) -> Tensor:
    """A number, shape () int64, that tells this rank's part from other values or another order."""
    local = tensor._local_tensor if isinstance(tensor, DTensor) else tensor.detach()
    if not local.numel():
        return torch.zeros((), dtype=torch.int64, device=local.device)
    bits = torch.view_as_real(local) if local.is_complex() else local
    bits = bits.contiguous().view(_BITS[bits.element_size()])
    matrix = bits.reshape(len(bits) if bits.ndim > 1 else 1, -1)
    rows, columns = (matrix.sum(dim, dtype=torch.int64) for dim in (1, 0))
    by_row, by_column = (
        (sums * torch.arange(1, len(sums) + 1, device=sums.device)).sum()
        for sums in (rows, columns)
    )
    return by_row + 1_000_003 * by_column
