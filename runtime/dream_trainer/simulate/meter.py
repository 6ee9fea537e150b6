"""What a step holds in memory and sends to other ranks, seen from below autograd."""

import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ..configs import RunError

aten = torch.ops.aten

Kind = Literal["model", "optimizer", "gradients", "activations", "gathered", "other"]
"""model: parameters and buffers. activations: what operators make in a forward pass, also in
one that recomputes. gathered: FSDP's buffers. other: what backward and the optimizer make on
the way, and gradients until the optimizer steps."""

COLLECTIVES = {"c10d", "_c10d_functional", "_dtensor"}
SILENT = ("wait_tensor", "_wrap_tensor_autograd", "barrier", "monitored_barrier_")
NAMES = {
    "allreduce_": "all-reduce",
    "all_reduce": "all-reduce",
    "_allgather_base_": "all-gather",
    "allgather_": "all-gather",
    "all_gather_into_tensor": "all-gather",
    "_reduce_scatter_base_": "reduce-scatter",
    "reduce_scatter_": "reduce-scatter",
    "reduce_scatter_tensor": "reduce-scatter",
    "alltoall_base_": "all-to-all",
    "alltoall_": "all-to-all",
    "all_to_all_single": "all-to-all",
    "shard_dim_alltoall": "all-to-all",
    "broadcast_": "broadcast",
    "recv_": "receive",
}
"""torch's operators in the words of the report."""


class Collective(NamedTuple):
    """One kind of collective: what it does, on the group of that name."""

    operation: str
    group: str


class Meter(TorchDispatchMode):
    """Follows every tensor's memory from birth to death and counts collectives.

    It sees the operators on this rank's own parts, below DTensor. Works on real tensors
    as on fake ones; on fake ones a number that is read is 1, and a decision by a boolean
    raises `RunError`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[int, tuple[Kind, int]] = {}
        self.watched: dict[int, weakref.ref[Any]] = {}
        self.now: Counter[Kind] = Counter()
        self.in_optimizer = False
        """To be set around an optimizer's step."""

        self.restart()

    def restart(self) -> None:
        """Forget peaks and collectives, not what is held."""
        self.counts: Counter[Collective] = Counter()
        self.bytes: Counter[Collective] = Counter()
        self.reads = 0
        self.peaks: Counter[Kind] = Counter(self.now)
        self.fullest = Counter(self.now)
        """What was held at the fullest moment."""

    def __enter__(self) -> "Meter":
        self._resize = torch.UntypedStorage.resize_
        meter, resize = self, self._resize

        def resize_(storage: torch.UntypedStorage, size: int) -> Any:
            # FSDP frees and takes its buffers so, past every operator.
            result = resize(storage, size)
            meter._resized(storage)
            return result

        torch.UntypedStorage.resize_ = resize_  # type: ignore[method-assign, assignment]
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(*error)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if any(kind not in (Tensor, nn.Parameter, nn.Buffer, FakeTensor) for kind in types):
            return NotImplemented  # DTensor goes first; its parts come back here.
        if func is aten._local_scalar_dense.default and isinstance(args[0], FakeTensor):
            return self._pretended_value(args[0])
        out = func(*args, **(kwargs or {}))
        kind = self._kind_of_new()
        for tensor in _tensors(out):
            self.hold(tensor, kind)
        if func.namespace == "fsdp":
            for tensor in (*_tensors(args), *_tensors(kwargs)):
                is_own = self.kind_of(tensor) in ("model", "gradients")
                self.hold(tensor, "gathered", again=not is_own)
        elif func.namespace in COLLECTIVES and func._opname not in SILENT:
            self._count(func, args, out)
        return out

    def hold(self, tensor: Tensor, kind: Kind, *, again: bool = False) -> None:
        """Count the memory of `tensor` as `kind`; memory that is counted already if `again`."""
        storage = local_part(tensor).untyped_storage()
        key = storage._cdata
        if key not in self.held:
            self.watched[key] = weakref.ref(storage, partial(self._freed, key))
        elif not again:
            return
        self._move(key, kind, storage.nbytes())

    def _kind_of_new(self) -> Kind:
        # Recording can be off in a forward pass, inside an autograd.Function; while it is on
        # in a backward pass, activations are recomputed.
        in_forward = torch._C._current_graph_task_id() == -1 and not self.in_optimizer
        return "activations" if in_forward or torch.is_grad_enabled() else "other"

    def kind_of(self, tensor: Tensor) -> Kind | None:
        """What the memory of `tensor` counts as."""
        return self.held.get(local_part(tensor).untyped_storage()._cdata, (None, 0))[0]

    def _move(self, key: int, kind: Kind, size: int) -> None:
        before, old = self.held.get(key, (kind, 0))
        self.now[before] -= old
        self.now[kind] += size
        self.held[key] = (kind, size)
        self.peaks[kind] = max(self.peaks[kind], self.now[kind])
        if self.now.total() > self.fullest.total():
            self.fullest = Counter(self.now)

    def _resized(self, storage: torch.UntypedStorage) -> None:
        if (held := self.held.get(storage._cdata)) is not None:
            self._move(storage._cdata, held[0], storage.nbytes())

    def _freed(self, key: int, _: object) -> None:
        kind, size = self.held.pop(key)
        self.now[kind] -= size
        del self.watched[key]

    def _count(self, func: Any, args: Any, out: Any) -> None:
        name = func._opname
        collective = Collective(NAMES.get(name, NAMES.get(name.rstrip("_"), name)), _group(args))
        sizes = [_bytes(part) for part in (*args, out)]
        self.counts[collective] += 1
        self.bytes[collective] += max(sizes, default=0)

    def _pretended_value(self, tensor: Tensor) -> Any:
        if tensor.dtype is torch.bool:
            raise RunError(
                "A decision depends on the values of a tensor, and a dry run knows only its "
                "shape. On a device it would wait for the value, too: use torch.where."
            )
        if self.kind_of(tensor) != "optimizer":  # Its counts of steps are on the CPU.
            self.reads += 1
        return 1.0 if tensor.dtype.is_floating_point else 1


def local_part(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor."""
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def storages(tensors: Iterable[Tensor]) -> list[torch.UntypedStorage]:
    """The memory of `tensors` on this rank, what they share once."""
    found = (local_part(tensor).untyped_storage() for tensor in tensors)
    return list({storage._cdata: storage for storage in found}.values())


def size_of(tensors: Iterable[Tensor]) -> int:
    """Bytes that `tensors` take on this rank."""
    return sum(storage.nbytes() for storage in storages(tensors))


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        yield from (leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor))


def _bytes(value: Any) -> int:
    """Bytes of the elements in one argument: a tensor, or a list of them."""
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(value))


def _group(args: Any) -> str:
    """The name of the process group among the arguments of a collective."""
    for argument in args:
        if isinstance(argument, torch.ScriptObject):
            try:
                return str(dist.ProcessGroup.unbox(argument).group_name)
            except (RuntimeError, TypeError):
                continue  # Another boxed object: the operation of a reduction.
    names = [argument for argument in args if isinstance(argument, str)]
    return names[-1] if names else ""
