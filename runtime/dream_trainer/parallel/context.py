"""Context parallelism: each rank holds a part of the sequence, attention sees all of it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
import torch.distributed._functional_collectives as collectives
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from ..configs import RunError

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
    parts = {id(tensor): split_sequence(tensor, dim, mesh) for tensor, dim in tensors}
    found: set[int] = set()
    local = _replaced(batch, parts, found)
    tables = [tensor for tensor, _ in tensors if id(tensor) not in found]
    whole = [table.data for table in tables]
    try:
        for table in tables:
            table.data = parts[id(table)]
        with attention_across(mesh, rotate_method):
            yield local
    finally:
        for table, data in zip(tables, whole, strict=True):
            table.data = data


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


def _replaced(batch: Any, parts: dict[int, Tensor], found: set[int]) -> Any:
    if isinstance(batch, Tensor):
        if id(batch) in parts:
            found.add(id(batch))
        return parts.get(id(batch), batch)
    if isinstance(batch, dict):
        return {key: _replaced(value, parts, found) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch)(_replaced(value, parts, found) for value in batch)
    return batch


@contextmanager
def attention_across(
    mesh: DeviceMesh, rotate_method: Literal["allgather", "alltoall"]
) -> Iterator[None]:
    """`F.scaled_dot_product_attention` over the sequence of all ranks."""
    if mesh.device_type != "cpu":
        from torch.distributed.tensor.experimental import context_parallel as on_cuda
        from torch.distributed.tensor.experimental._attention import set_rotate_method

        set_rotate_method(rotate_method)
        with on_cuda(mesh, buffers=[], buffer_seq_dims=[], no_restore_buffers=set()):
            yield
        return
    original = F.scaled_dot_product_attention
    F.scaled_dot_product_attention = gathered_attention(mesh, original)
    try:
        yield
    finally:
        F.scaled_dot_product_attention = original


def gathered_attention(
    mesh: DeviceMesh, attention: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    """Attention of this rank's queries over all ranks' keys; torch's ring has no CPU kernel."""

    def attend(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **options: Any,
    ) -> Tensor:
        if attn_mask is not None:
            raise RunError(
                "Context parallelism supports attention that is causal or full, but "
                "scaled_dot_product_attention was called with an attn_mask. Set "
                "context_parallel=1, or drop the mask."
            )
        keys, values = (_gather(tensor, mesh) for tensor in (key, value))
        mask = causal_mask(query.shape[-2], mesh, query.device) if is_causal else None
        return attention(query, keys, values, attn_mask=mask, dropout_p=dropout_p, **options)

    return attend


def causal_mask(length: int, mesh: DeviceMesh, device: torch.device) -> Tensor:
    """(length, length * ranks) bool: which gathered keys each of this rank's queries may see."""
    ranks = mesh.size()
    chunks = torch.arange(length * ranks, device=device).chunk(2 * ranks)
    order = [torch.cat((chunks[rank], chunks[-1 - rank])) for rank in range(ranks)]
    return order[mesh.get_local_rank()][:, None] >= torch.cat(order)[None, :]


def _gather(tensor: Tensor, mesh: DeviceMesh) -> Tensor:
    """(..., seq, dim) of every rank, one after the other along seq; gradients are summed."""
    first = tensor.movedim(-2, 0).contiguous()
    gathered: Tensor = collectives.all_gather_single_autograd(first, 0, mesh)
    return gathered.movedim(0, -2)
