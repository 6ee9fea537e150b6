"""Random numbers: the same weights on every mesh, and one stream for each data rank."""

import random
import sys
from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten

NamedParts = Sequence[tuple[str, nn.Module]]
"""Models with the names of their attributes; the stages of one model share its name."""

_DRAWS = {
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
    qualified name): what one module draws never shifts another's. A sharded tensor is
    drawn whole, one at a time, and each rank keeps its part, without communication.
    (DTensor's own random operators fill every shard with the same numbers on CPU.)
    """

    def __init__(self, models: NamedParts, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.generators: dict[str, torch.Generator] = {}
        self.names: dict[int, str] = {}
        for root, model in models:
            for kind in (model.named_parameters, model.named_buffers):
                for name, tensor in kind(prefix=root):
                    self.names[id(tensor)] = name

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in _DRAWS:
            return func(*args, **kwargs)
        target, *rest = args
        if kwargs.get("generator") is None and (name := self.names.get(id(target))):
            kwargs = {**kwargs, "generator": self._generator(name, target.device)}
        if not isinstance(target, DTensor):
            return func(target, *rest, **kwargs)
        full = torch.empty(target.shape, dtype=target.dtype, device=target.device)
        func(full, *rest, **kwargs)
        target.copy_(
            distribute_tensor(full, target.device_mesh, target.placements, src_data_rank=None)
        )
        return target

    def _generator(self, name: str, device: torch.device) -> torch.Generator:
        if name not in self.generators:
            generator = torch.Generator(device)
            self.generators[name] = generator.manual_seed(crc32(f"{self.seed}/{name}".encode()))
        return self.generators[name]


def seed_everything(seed: int) -> None:
    """Seed Python, torch on every device and, where it is loaded, numpy."""
    random.seed(seed)
    torch.manual_seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed % 2**32)


def stream_seed(seed: int, coordinate: Mapping[str, int], axes_sizes: Mapping[str, int]) -> int:
    """The seed of a rank's dropout: equal over tp, different over dp, cp and pp."""
    index = 0
    for axis in ("pp", "dp_replicate", "dp_shard", "cp"):
        index = index * axes_sizes[axis] + coordinate[axis]
    return seed if index == 0 else crc32(f"{seed}/{index}".encode())


_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def fingerprint(tensor: Tensor) -> Tensor:
    """A number, shape () int64, that tells this rank's part from other values."""
    local = tensor._local_tensor if isinstance(tensor, DTensor) else tensor.detach()
    bits = torch.view_as_real(local) if local.is_complex() else local
    return bits.contiguous().view(_BITS[bits.element_size()]).sum(dtype=torch.int64)
