"""A world that is not there: one process as any rank of any cluster, and no CUDA."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from ..configs import ConfigError, RunError

MIB = 2**20
FIRST_BUCKET, BUCKET = 1 * MIB, 25 * MIB
"""Bytes of gradients that DistributedDataParallel sends at once: the first time, later."""


@contextmanager
def pretended_world(rank: int, world_size: int, local_world_size: int) -> Iterator[None]:
    """This process is rank `rank` of `world_size`; collectives return without communicating.

    Raises `ConfigError` for a rank or a node that cannot be.
    """
    if not 0 <= rank < world_size:
        raise ConfigError(
            "DT102",
            f"There is no rank {rank} among {world_size}.",
            f"Use --rank 0 to {world_size - 1}.",
        )
    if world_size % local_world_size:
        raise ConfigError(
            "DT102",
            f"{world_size} processes do not fill nodes of {local_world_size}.",
            "Use a --world-size that is a multiple of --nproc-per-node.",
        )
    if dist.is_initialized():
        raise RunError("A dry run needs a process of its own: a process group exists already.")
    environment = {
        "RANK": rank,
        "WORLD_SIZE": world_size,
        "LOCAL_RANK": rank % local_world_size,
        "LOCAL_WORLD_SIZE": local_world_size,
    }
    with ExitStack() as stack:
        stack.enter_context(_environment({key: str(n) for key, n in environment.items()}))
        stack.enter_context(replaced(DistributedDataParallel, STAND_IN))
        dist.init_process_group("fake", rank=rank, world_size=world_size, store=FakeStore())
        try:
            yield
        finally:
            dist.destroy_process_group()
            forget_meshes()


def forget_meshes() -> None:
    """Empty DTensor's caches: they hold meshes, and with them the rank of an earlier world."""
    propagator = DTensor._op_dispatcher.sharding_propagator
    propagator.propagate_op_sharding.cache.cache_clear()  # type: ignore[attr-defined]
    torch._C._clear_DTensor_sharding_propagator_cache()  # type: ignore[attr-defined]


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def replaced(owner: Any, attributes: Mapping[str, Any]) -> Iterator[None]:
    """`owner` with other attributes for a while."""
    before = {name: getattr(owner, name) for name in attributes}
    for name, value in attributes.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


# DistributedDataParallel's C++ reads memory that a fake tensor lacks. What stands in for it
# keeps what matters here: the buckets, their all-reduces, and when they happen.


def _init(ddp: Any, module: nn.Module, *_: Any, **options: Any) -> None:
    nn.Module.__init__(ddp)
    ddp.module = module
    ddp.require_backward_grad_sync = True
    mesh, group = options.get("device_mesh"), options.get("process_group")
    ddp.process_group = group or (mesh.get_group() if mesh is not None else dist.group.WORLD)
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    ddp.buckets, ddp.trained = [], len(trained)
    for parameter in trained:
        parameter.register_post_accumulate_grad_hook(lambda p: _ready(ddp, p))


def _ready(ddp: Any, parameter: Tensor) -> None:
    if not ddp.require_backward_grad_sync or parameter.grad is None:
        return
    ddp.pending.append(parameter.grad)
    ddp.waiting -= 1
    limit = BUCKET if ddp.sent else FIRST_BUCKET
    if sum(gradient.nbytes for gradient in ddp.pending) >= limit or not ddp.waiting:
        if ddp.sent == len(ddp.buckets):  # Buckets live as long as the model.
            elements = sum(gradient.numel() for gradient in ddp.pending)
            ddp.buckets.append(torch.empty(elements, dtype=parameter.dtype))
        dist.all_reduce(ddp.buckets[ddp.sent], group=ddp.process_group)
        ddp.pending, ddp.sent = [], ddp.sent + 1


def _pre_forward(ddp: Any, *inputs: Any, **kwargs: Any) -> Any:
    ddp.pending, ddp.sent, ddp.waiting = [], 0, ddp.trained
    return inputs, kwargs


def _forward(ddp: Any, *inputs: Any, **kwargs: Any) -> Any:
    _pre_forward(ddp)
    return ddp.module(*inputs, **kwargs)


def _post_forward(ddp: Any, output: Any) -> Any:
    return output


STAND_IN = {
    "__init__": _init,
    "_pre_forward": _pre_forward,
    "_post_forward": _post_forward,
    "forward": _forward,
}
