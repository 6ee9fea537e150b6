"""Before the first batch: does what the hooks made fit the mesh, and will all of it train?"""

import re
import traceback
import warnings
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed._composable.contract import _get_registry
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Shard
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import RandomSampler

from ..configs import RunError
from ..materialize import named_tensors, shortened
from ..seeding import NamedParts, clean
from ..world import World
from .replicas import warn

_UNMATCHED = re.compile(r"Parallelize plan key '(.*)' could not be resolved")
_NOT_USER_CODE = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))


class MetaWrites(TorchDispatchMode):
    """Records writes to meta tensors by other code than the constructors of modules.

    Constructors fill their own tensors, which is harmless: `init_weights` does so again.
    """

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[int, tuple[torch.UntypedStorage, str]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        first = args[0] if args else None
        if func._schema.is_mutable and isinstance(first, Tensor) and first.is_meta:
            storage = first.untyped_storage()
            if storage._cdata not in self.places and (place := _place_outside_constructors()):
                self.places[storage._cdata] = storage, place
        return func(*args, **(kwargs or {}))

    def warn(self, models: NamedParts, world: World) -> None:
        """Name what was written, and where."""
        for name, tensor in named_tensors(models):
            _, place = self.places.get(tensor.untyped_storage()._cdata, (None, ""))
            if place:
                warn(
                    world,
                    f"configure_models wrote to {name} on the meta device ({place}), where "
                    "there is no memory: the values are lost. Move it to init_weights.",
                )
                return  # The first tells the place; a call usually writes to all of them.


def _place_outside_constructors() -> str:
    """The line of the user's code under way, as "train.py:41"; empty inside a constructor."""
    place = ""
    for frame, line in traceback.walk_stack(None):
        code = frame.f_code
        if code.co_name == "__init__" and isinstance(frame.f_locals.get("self"), nn.Module):
            return ""
        if not place and not code.co_filename.startswith(_NOT_USER_CODE):
            place = f"{Path(code.co_filename).name}:{line}"
    return place


@contextmanager
def every_key_matches(models: NamedParts) -> Iterator[None]:
    """Raise `RunError` where a tensor-parallel plan applied inside has keys without a module."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    keys = []
    for warning in caught:
        if found := _UNMATCHED.match(str(warning.message)):
            keys.append(found[1])
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    if keys:
        names = _names_in_plans(models)
        told = [f"{key!r}{_suggestion(key, names)}" for key in dict.fromkeys(keys)]
        raise RunError(
            f"No module matches {', '.join(told)} of the plan in apply_tensor_parallel: what is "
            "meant would stay whole on every rank. Correct the names."
        )


def _suggestion(key: str, names: Iterable[str]) -> str:
    close = get_close_matches(key, names, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _names_in_plans(models: NamedParts) -> set[str]:
    """What keys can be: names from any module downwards, numbers as they are or as "*"."""
    found = set()
    for _, model in models:
        for name, _ in model.named_modules():
            parts = clean(name).split(".")
            for start in range(len(parts)):
                tail = parts[start:]
                found.add(".".join(tail))
                found.add(".".join("*" if part.isdigit() else part for part in tail))
    return found


def raise_if_indivisible(models: NamedParts, tp: int) -> None:
    """Raise `RunError` where the plan cuts through an attention head, or unevenly.

    For modules with a `head_dim`; a row-wise layer takes equal parts from the ranks.
    """
    for root, model in models:
        for path, module in model.named_modules(prefix=root):
            head_dim = getattr(module, "head_dim", None)
            for name, child in module.named_children():
                weight = getattr(child, "weight", None)
                if not (isinstance(child, nn.Linear) and isinstance(weight, DTensor)):
                    continue
                rows, columns = weight.shape
                if weight.placements == (Shard(1),):
                    parts = "features", columns
                elif weight.placements == (Shard(0),) and isinstance(head_dim, int):
                    parts = "heads", rows // head_dim
                else:
                    continue
                if parts[1] % tp:
                    raise RunError(
                        f"{path}.{name} has {parts[1]} {parts[0]}, which tensor_parallel={tp} "
                        f"cannot divide. Use a multiple of {tp}, or lower tensor_parallel."
                    )


def raise_unless_sharded(models: NamedParts, mesh: DeviceMesh, world: World) -> None:
    """Raise `RunError` where a trained parameter is not sharded over `mesh` as it should be."""
    plain, strange = [], {}
    for name, parameter in trained(models):
        on = parameter.device_mesh if isinstance(parameter, DTensor) else None
        if on is None or on.mesh_dim_names == ("tp",):
            plain.append(name)
        elif not _lies_on(parameter, mesh, world.coordinate["tp"]):
            strange[name] = on
    if plain:
        raise RunError(
            f"apply_fully_shard left {len(plain)} trained parameters outside every FSDP group: "
            f"{shortened(plain)}. Their gradients would not be averaged over ranks. "
            "End the hook with fully_shard(self.model, **config)."
        )
    if strange:
        raise RunError(
            f"apply_fully_shard put {len(strange)} trained parameters on "
            f"{_shown(next(iter(strange.values())))}, expected {_shown(mesh)}: "
            f"{shortened(list(strange))}. Pass **config to every fully_shard."
        )


def _lies_on(parameter: Any, mesh: DeviceMesh, tp_rank: int) -> bool:
    """Whether the last dimension of `mesh` shards `parameter` and those before replicate it."""
    ranks = parameter.device_mesh.mesh
    if ranks.ndim == mesh.ndim + 1:
        ranks = ranks[..., tp_rank]
    placements = parameter.placements[: mesh.ndim]
    expected = [True] * (mesh.ndim - 1) + [False]
    return torch.equal(ranks, mesh.mesh) and [p.is_replicate() for p in placements] == expected


def _shown(mesh: DeviceMesh) -> str:
    """The mesh as in "dp_shard=4 x tp=2"."""
    names = mesh.mesh_dim_names or ("unnamed",) * mesh.ndim
    return " x ".join(f"{name}={size}" for name, size in zip(names, mesh.shape, strict=True))


def raise_unless_replicated(models: NamedParts) -> None:
    """Raise `RunError` where a trained parameter is in no replicated module."""
    covered = {
        id(parameter)
        for _, model in models
        for module in model.modules()
        if isinstance(module, FSDPModule)  # replicate_with_fsdp
        or "replicate" in (_get_registry(module) or ())
        for parameter in module.parameters()
    }
    if bare := [name for name, parameter in trained(models) if id(parameter) not in covered]:
        raise RunError(
            f"apply_replicate left {len(bare)} trained parameters outside every replicated "
            f"module: {shortened(bare)}. Their gradients would not be averaged over ranks. "
            "Call replicate(self.model, device_mesh=dp_replicate_mesh)."
        )


def raise_if_sharded_early(models: NamedParts) -> None:
    """Raise `RunError` where a hook before `apply_fully_shard` has done its work."""
    for root, model in models:
        for path, module in model.named_modules(prefix=root):
            if isinstance(module, FSDPModule):
                raise RunError(
                    f"{path} is sharded before apply_fully_shard is called. fully_shard belongs "
                    "there: it comes after tensor parallelism, checkpointing and compilation."
                )


def check_trained(
    models: NamedParts, optimizers: Collection[Optimizer], world: World, is_sharded: bool
) -> None:
    """Raise where what is trained is not sharded, or of 16 bits; name what is left out."""
    if is_sharded:
        raise_if_no_longer_sharded(models)
    if not world.parameters.allow_low_precision_params:
        raise_on_low_precision(optimizers)
    warn_of_untrained(models, optimizers, world)


def raise_if_no_longer_sharded(models: NamedParts) -> None:
    """Raise `RunError` where a parameter that was sharded has become a plain tensor."""
    found = dict(trained(models))
    if plain := [name for name, tensor in found.items() if not isinstance(tensor, DTensor)]:
        raise RunError(
            f"{len(plain)} of {len(found)} trained parameters are no longer sharded: "
            f"{shortened(plain)}. An optimizer would train tensors that are not the model's. "
            "Set weights in place, never as a new nn.Parameter nor by assign=True, and run no "
            "forward before the first step."
        )


def raise_on_low_precision(optimizers: Iterable[Optimizer]) -> None:
    """Raise `RunError` where an optimizer trains weights of 16 bits, which lose small steps."""
    for optimizer in optimizers:
        held = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        low = [p.dtype for p in held if p.dtype in (torch.bfloat16, torch.float16)]
        if low:
            raise RunError(
                f"{len(low)} of {len(held)} parameters that {type(optimizer).__name__} trains are "
                f"{str(low[0]).removeprefix('torch.')}: steps below its precision are lost. Keep "
                "them float32 and set param_dtype, or opt in with "
                "DeviceParameters(allow_low_precision_params=True)."
            )


def warn_of_untrained(models: NamedParts, optimizers: Iterable[Optimizer], world: World) -> None:
    """Name the parameters that want a gradient and that no optimizer holds."""
    held = {id(p) for opt in optimizers for group in opt.param_groups for p in group["params"]}
    found = dict(trained(models))
    if left := [name for name, parameter in found.items() if id(parameter) not in held]:
        warn(
            world,
            f"no optimizer holds {len(left)} of {len(found)} trainable parameters: "
            f"{shortened(left)}. Add them to one, or freeze them with requires_grad_(False).",
        )


def warn_of_fixed_order(loader: Any, epochs: float, world: World) -> None:
    """Say so where a sampler that shuffles cannot be told the epoch."""
    for sampler in (getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)):
        if (
            epochs > 1
            and getattr(sampler, "shuffle", False) is True
            and not hasattr(sampler, "set_epoch")
            and not isinstance(sampler, RandomSampler)
        ):
            warn(
                world,
                f"{type(sampler).__name__} shuffles but has no set_epoch: unless it counts "
                "epochs itself, every epoch has the same order.",
            )


def trained(models: NamedParts) -> Iterator[tuple[str, nn.Parameter]]:
    """Every parameter that wants a gradient, under its fully qualified name."""
    for root, model in models:
        for name, parameter in model.named_parameters(prefix=root):
            if parameter.requires_grad:
                yield name, parameter
