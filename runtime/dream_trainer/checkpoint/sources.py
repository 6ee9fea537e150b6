"""Where weights come from: checkpoints, `.pt` files, safetensors. A rank reads its own slices."""

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.distributed.checkpoint import DefaultLoadPlanner, StorageReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.tensor import DTensor

from ..configs import RunError
from .manifest import MANIFEST, UNFINISHED, Checkpoint, Mode, find
from .state import OWN, flattened
from .store import Store

INDEX = "model.safetensors.index.json"
TORCH_SUFFIXES = (".pt", ".pth", ".bin")


class Weights(Protocol):
    """Tensors by name, of which parts can be read."""

    shapes: dict[str, torch.Size]

    def read(self, into: dict[str, Tensor]) -> None:
        """Fill each tensor, or this rank's part of it, with the one of its name."""


class CheckpointWeights:
    """What a DCP folder holds of models: everything but the runtime's own state."""

    def __init__(self, reader: StorageReader) -> None:
        self.reader, self.metadata = reader, reader.read_metadata()
        entries = self.metadata.state_dict_metadata.items()
        self.tensors = {
            key: entry
            for key, entry in entries
            if isinstance(entry, TensorStorageMetadata) and not key.startswith(OWN)
        }
        self.shapes = {key: entry.size for key, entry in self.tensors.items()}

    def read(self, into: dict[str, Tensor]) -> None:
        # The steps of `dcp.load`, but for its collectives: stages ask for different keys.
        planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
        planner.set_up_planner(into, self.metadata, is_coordinator=True)
        self.reader.set_up_storage_reader(self.metadata, is_coordinator=True)
        plan = self.reader.prepare_local_plan(planner.create_local_plan())
        self.reader.read_data(planner.finish_plan(plan), planner).wait()


class SlicedWeights:
    """Whole tensors in mapped files; `tensors[name][slices]` reads no more than that."""

    def __init__(self, tensors: Mapping[str, Any], shapes: dict[str, torch.Size]) -> None:
        self.tensors, self.shapes = tensors, shapes

    def read(self, into: dict[str, Tensor]) -> None:
        for name, tensor in into.items():
            if not isinstance(tensor, DTensor):
                tensor.copy_(self.tensors[name][()])
                continue
            for chunk in tensor.__create_chunk_list__():  # type: ignore[no-untyped-call]
                ends = zip(chunk.offsets, chunk.sizes, strict=True)
                part = tuple(slice(offset, offset + size) for offset, size in ends)
                if tensor._local_tensor.numel():
                    tensor._local_tensor.copy_(self.tensors[name][part])


def open_weights(
    source: str, *, rank: int = 0, ranks: int = 1, monitor: str = "", mode: Mode = "last"
) -> Weights:
    """The weights that `source` names.

    A checkpoint, the folder of a run or of its checkpoints, any other DCP folder, a `.pt` file
    of a state dict, a `.safetensors` file, or a folder of those as Hugging Face writes it. A
    checkpoint's files are verified, those of this rank's share by their checksums. Raises
    `RunError` where there is nothing of this, or where it is damaged.
    """
    path, files = Path(source), Store(source).files()
    if path.suffix in TORCH_SUFFIXES and path.is_file():
        return _torch_file(path)
    if is_safetensors(source):
        return _safetensors(_safetensors_files(path))
    if ".metadata" in files and MANIFEST not in files and UNFINISHED not in source:
        return CheckpointWeights(Store(source).reader(""))
    if not files and not Store(source).folders():
        raise RunError(
            f"{source} does not exist. Name a checkpoint, the folder of a run, a .pt file, a "
            ".safetensors file or a folder of those."
        )
    checkpoint = find(source, monitor, mode)
    verify(checkpoint, rank, ranks)
    return CheckpointWeights(checkpoint.store.reader(checkpoint.name))


def verify(checkpoint: Checkpoint, rank: int = 0, ranks: int = 1) -> None:
    """Raise `RunError` unless its files are what was written; reads every `ranks`-th of them."""
    if found := checkpoint.problems(rank, ranks):
        raise RunError(f"{checkpoint.url} is damaged: {'; '.join(found)}. Use another checkpoint.")


def is_safetensors(source: str) -> bool:
    """Whether `source` is a file or a folder of safetensors on this machine."""
    path = Path(source)
    return (path.is_file() and path.suffix == ".safetensors") or any(path.glob("*.safetensors"))


def _torch_file(path: Path) -> SlicedWeights:
    try:
        content = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise RunError(
            f"{path} cannot be read as tensors: {reason} Write it by "
            "torch.save(model.state_dict(), path)."
        ) from error
    tensors = {key: v for key, v in flattened(content).items() if isinstance(v, Tensor)}
    return SlicedWeights(tensors, {key: tensor.shape for key, tensor in tensors.items()})


def _safetensors_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if (index := path / INDEX).exists():
        names = set(json.loads(index.read_text())["weight_map"].values())
        if absent := sorted(name for name in names if not (path / name).exists()):
            raise RunError(f"{index} names {absent[0]}, which is not there. Fetch it again.")
        return sorted(path / name for name in names)
    return sorted(path.glob("*.safetensors"))


def _safetensors(files: list[Path]) -> SlicedWeights:
    open_file = require_safetensors(files[0]).safe_open
    tensors: dict[str, Any] = {}
    for path in files:
        try:
            file = open_file(path, framework="pt")
        except Exception as error:
            raise RunError(f"{path} cannot be read: {error}. Fetch it again.") from error
        tensors |= {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
    shapes = {name: torch.Size(tensor.get_shape()) for name, tensor in tensors.items()}
    return SlicedWeights(tensors, shapes)


def require_safetensors(path: Path) -> Any:
    """The library, which is only needed for such files; `RunError` where it is missing."""
    try:
        import_module("safetensors.torch")
        return import_module("safetensors")
    except ImportError:
        raise RunError(f"{path} needs safetensors. Install it: pip install safetensors.") from None
