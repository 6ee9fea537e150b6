"""Context parallelism: each rank holds a part of the sequence, attention sees all of it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, Literal

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from ..configs import RunError
from ..data import replaced

Attention = Callable[..., Tensor]

SplitTensor = tuple[Tensor, int]
"""A tensor and its sequence dim."""


@contextmanager
def context_parallel(
    mesh: DeviceMesh,
    batch: Any,
    tensors: Sequence[SplitTensor],
    rotate_method: Literal["allgather", "alltoall"],
) -> Iterator[Any]:
    """Give `batch` with this rank's part of `tensors`; attention works across the ranks.

    Tensors that are in the batch are replaced in a copy of it; others (tables of
    positions) hold this rank's part until the context ends. Each rank takes the r-th
    chunk from the front and the r-th from the back, so that causal work is even. All
    ranks of `mesh` take part.
    """
    dims = {id(tensor): dim for tensor, dim in tensors}
    found: dict[int, int] = {}

    def part_of(tensor: Tensor) -> Tensor:
        if (dim := dims.get(id(tensor))) is None:
            return tensor
        found[id(tensor)] = tensor.shape[dim]
        return split_sequence(tensor, dim, mesh)

    local = replaced(batch, part_of)
    length = _one_length(set(found.values()))
    tables = [(tensor, dim) for tensor, dim in tensors if id(tensor) not in found]
    whole = [table.data for table, _ in tables]
    try:
        for table, dim in tables:  # Made for the longest sequence: this one has its first rows.
            table.data = split_sequence(table.data.narrow(dim, 0, length), dim, mesh)
        with attention_across(mesh, length, rotate_method):
            yield local
    finally:
        for (table, _), data in zip(tables, whole, strict=True):
            table.data = data


def _one_length(lengths: set[int]) -> int:
    if not lengths:
        raise RunError(
            "context_parallel_buffers names no tensor of the batch, so that every rank would "
            "read the whole sequence. Return the batch's own tensors, not slices or copies."
        )
    if len(lengths) > 1:
        raise RunError(
            f"context_parallel_buffers names sequences of {sorted(lengths)} tokens in one batch. "
            "Inputs and targets must be equally long, each with its own sequence dim."
        )
    return lengths.pop()


def split_sequence(tensor: Tensor, dim: int, mesh: DeviceMesh) -> Tensor:
    """This rank's part of `tensor` along `dim`: a chunk of the head and one of the tail."""
    ranks, rank = mesh.size(), mesh.get_local_rank()
    if tensor.shape[dim] % (2 * ranks):
        raise RunError(
            f"A sequence of {tensor.shape[dim]} cannot be split over context_parallel={ranks}: "
            f"each rank takes two chunks. Use a multiple of {2 * ranks}."
        )
    chunks = tensor.chunk(2 * ranks, dim)
    return torch.cat((chunks[rank], chunks[-1 - rank]), dim)


@contextmanager
def attention_across(
    mesh: DeviceMesh, length: int, rotate_method: Literal["allgather", "alltoall"]
) -> Iterator[None]:
    """`F.scaled_dot_product_attention` over the sequence of all ranks, `length` tokens long."""
    on_cpu = mesh.device_type == "cpu"
    with nullcontext() if on_cpu else _torch_ring(mesh, length, rotate_method):
        inner = F.scaled_dot_product_attention
        attend = partial(_gathered_attention, mesh) if on_cpu else _ring_attention
        F.scaled_dot_product_attention = partial(attend, inner)
        try:
            yield
        finally:
            F.scaled_dot_product_attention = inner


@contextmanager
def _torch_ring(
    mesh: DeviceMesh, length: int, rotate_method: Literal["allgather", "alltoall"]
) -> Iterator[None]:
    """Torch's own ring attention, which balances head and tail as `split_sequence` does."""
    from torch.distributed.tensor.experimental import context_parallel as torch_context_parallel
    from torch.distributed.tensor.experimental._attention import set_rotate_method

    set_rotate_method(rotate_method)
    # Torch takes the length of the sequence from a buffer, and the buffer to split it.
    ruler = torch.empty(length, device=mesh.device_type)
    with torch_context_parallel(
        mesh, buffers=[ruler], buffer_seq_dims=[0], no_restore_buffers={ruler}
    ):
        yield


def _ring_attention(
    attention: Attention, query: Tensor, key: Tensor, value: Tensor, **options: Any
) -> Tensor:
    _refuse_mask(options)
    if options.pop("enable_gqa", False):  # The ring has no grouped kernels.
        groups = query.shape[-3] // key.shape[-3]
        key, value = (tensor.repeat_interleave(groups, -3) for tensor in (key, value))
    return attention(query, key, value, **options)


def _gathered_attention(
    mesh: DeviceMesh,
    attention: Attention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    **options: Any,
) -> Tensor:
    """This rank's queries over all ranks' keys: torch's ring has no kernel for the CPU."""
    _refuse_mask(options)
    key, value = (_gather(tensor, mesh) for tensor in (key, value))
    if options.pop("is_causal", False):
        options["attn_mask"] = causal_mask(query.shape[-2], mesh, query.device)
    return attention(query, key, value, **options)


def _refuse_mask(options: dict[str, Any]) -> None:
    if options.pop("attn_mask", None) is not None:
        raise RunError(
            "Context parallelism supports attention that is causal or full, but "
            "scaled_dot_product_attention was called with an attn_mask. Set "
            "context_parallel=1, or drop the mask."
        )


def causal_mask(length: int, mesh: DeviceMesh, device: torch.device) -> Tensor:
    """(length, length * ranks) bool: which gathered keys each of this rank's queries may see."""
    ranks = mesh.size()
    chunks = torch.arange(length * ranks, device=device).chunk(2 * ranks)
    order = [torch.cat((chunks[rank], chunks[-1 - rank])) for rank in range(ranks)]
    return order[mesh.get_local_rank()][:, None] >= torch.cat(order)[None, :]


def _gather(tensor: Tensor, mesh: DeviceMesh) -> Tensor:
    """(..., seq, dim) of every rank, one after the other along seq; gradients are summed."""
    gathered: Tensor = _Gather.apply(tensor.movedim(-2, 0).contiguous(), mesh.get_group())
    return gathered.movedim(0, -2)


class _Gather(torch.autograd.Function):
    """(seq, ...) -> (seq * ranks, ...); torch's functional one damages gloo's memory (2.13)."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        whole = part.new_empty(part.shape[0] * group.size(), *part.shape[1:])
        dist.all_gather_into_tensor(whole, part, group)
        return whole

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        summed = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(summed, group=ctx.group)
        return summed.chunk(ctx.group.size())[ctx.group.rank()], None
