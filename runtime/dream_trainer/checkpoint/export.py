"""Weights out: a checkpoint, or a trained model, as one `.pt` file or as safetensors."""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.distributed.checkpoint as dcp

from ..configs import RunError
from .agreement import together
from .manifest import UNFINISHED, Mode, find
from .sources import INDEX, CheckpointWeights, require_safetensors, verify
from .state import model_state
from .store import Store, flush_folder

if TYPE_CHECKING:
    from ..trainer import BaseTrainer

Format = Literal["pt", "safetensors"]
Layout = tuple[dict[str, str], dict[str, Any]]
"""Own name, without the model's attribute -> Hugging Face name; the contents of config.json."""

SHARD_BYTES = 5_000_000_000

TIMEOUT_SECONDS = 3600
"""How long ranks wait for the one that writes the largest part of an export."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where an export goes, a place of this machine, and how.

    "pt" is one file of a flat state dict. "safetensors" is a folder as Hugging Face writes it:
    shards of at most `shard_bytes`, or of one tensor, an index and, of a layout, config.json.
    """

    output: Path
    format: Format
    layout: Layout | None = None
    shard_bytes: int = SHARD_BYTES

    @property
    def unfinished(self) -> Path:
        return self.output.with_name(self.output.name + UNFINISHED)

    def raise_if_impossible(self) -> None:
        """Before any work: raise `RunError` where the result could not be put in its place."""
        if self.format == "safetensors":
            require_safetensors(self.output)
        if self.output.is_dir() and (self.format == "pt" or any(self.output.iterdir())):
            raise RunError(f"{self.output} is a folder already. Name another, or remove it.")
        if self.format == "safetensors" and self.output.is_file():
            raise RunError(f"{self.output} is a file; safetensors make a folder. Name another.")


def export(
    source: str,
    target: Target,
    *,
    monitor: str = "",
    mode: Mode = "last",
    demanded: bool = False,
) -> "Export":
    """Export the models of a checkpoint, once all its files are verified; see `manifest.find`.

    One process is enough, and none of the run is needed. A `.pt` file is put together in
    memory; of safetensors no more than a shard is. Raises `RunError`.
    """
    target.raise_if_impossible()
    checkpoint = find(source, monitor, mode, demanded=demanded)
    verify(checkpoint)
    made = Export(CheckpointWeights(checkpoint.store.reader(checkpoint.name)), target)
    made.begin()
    made.write()
    made.finish()
    return made


def export_trained(trainer: "BaseTrainer", target: Target) -> "Export":
    """Export the models as they are now, from any mesh. All ranks take part.

    Each rank writes what it holds beside the output, and reads from there what it turns into
    whole tensors: of safetensors a shard at a time, of a `.pt` file rank 0 everything.
    `target.output` must be a place that all ranks see. Raises `RunError` on every rank.
    """
    world = trainer.world
    parts = target.output.with_name(f"{target.output.name}.parts")

    def prepare() -> None:
        if world.is_rank_zero:
            target.raise_if_impossible()
            shutil.rmtree(parts, ignore_errors=True)

    def save() -> Export:
        dcp.save(model_state(trainer), storage_writer=Store(str(parts)).writer(""))
        made = Export(CheckpointWeights(Store(str(parts)).reader("")), target)
        if world.is_rank_zero:
            made.begin()
        return made

    def finish() -> None:
        if world.is_rank_zero:
            made.finish()
            shutil.rmtree(parts)

    what = f"Cannot export to {target.output}"
    world.set_timeout(TIMEOUT_SECONDS)
    together(world, prepare, what)
    made = together(world, save, what)
    together(world, lambda: made.write(world.rank, world.world_size), what)
    together(world, finish, what)
    return made


class Export:
    """One export under way: tensors under their new names, dealt out to files."""

    def __init__(self, weights: CheckpointWeights, target: Target) -> None:
        self.weights, self.target = weights, target
        self.names = exported_names(list(weights.shapes), target)
        self.bytes = {
            key: entry.size.numel() * entry.properties.dtype.itemsize
            for key, entry in weights.tensors.items()
        }
        self.shards = list(self._shards())

    def __str__(self) -> str:
        size = sum(self.bytes.values())
        return f"{len(self.names)} tensors, {size:,} bytes -> {self.target.output}"

    def _shards(self) -> Iterator[list[str]]:
        shard: list[str] = []
        size = 0
        for key, more in self.bytes.items():
            if shard and size + more > self.target.shard_bytes:
                yield shard
                shard, size = [], 0
            shard.append(key)
            size += more
        yield shard

    def begin(self) -> None:
        """Make room beside the output; what an attempt left there goes."""
        unfinished = self.target.unfinished
        self.target.output.parent.mkdir(parents=True, exist_ok=True)
        if unfinished.is_dir():
            shutil.rmtree(unfinished)
        unfinished.unlink(missing_ok=True)
        if self.target.format == "safetensors":
            unfinished.mkdir()

    def write(self, rank: int = 0, ranks: int = 1) -> None:
        """Write every `ranks`-th file, from `rank` on."""
        path = self.target.unfinished
        if self.target.format == "pt":
            if rank == 0:
                torch.save(self._read(list(self.names)), path)
                _flush(path)
            return
        save_file = require_safetensors(self.target.output).torch.save_file
        for index in range(rank, len(self.shards), ranks):
            file = path / self._file_name(index)
            file.touch()
            mode = file.stat().st_mode  # The library leaves files that only their owner may read.
            save_file(self._read(self.shards[index]), file, metadata={"format": "pt"})
            file.chmod(mode)
            _flush(file)

    def _read(self, keys: list[str]) -> dict[str, torch.Tensor]:
        entries = {key: self.weights.tensors[key] for key in keys}
        into = {
            key: torch.empty(entry.size, dtype=entry.properties.dtype)
            for key, entry in entries.items()
        }
        self.weights.read(into)
        return {self.names[key]: tensor for key, tensor in into.items()}

    def _file_name(self, index: int) -> str:
        return f"model-{index + 1:05d}-of-{len(self.shards):05d}.safetensors"

    def finish(self) -> None:
        """Put the whole in its place, once every file is written."""
        path, output = self.target.unfinished, self.target.output
        if self.target.format == "safetensors":
            places = {
                self.names[key]: self._file_name(index)
                for index, shard in enumerate(self.shards)
                for key in shard
            }
            index = {"metadata": {"total_size": sum(self.bytes.values())}, "weight_map": places}
            texts = {INDEX: index} | (
                {"config.json": self.target.layout[1]} if self.target.layout else {}
            )
            for name, content in texts.items():
                (path / name).write_text(json.dumps(content, indent=2) + "\n")
                _flush(path / name)
            flush_folder(path)
        os.replace(path, output)
        flush_folder(output.parent)


def exported_names(keys: list[str], target: Target) -> dict[str, str]:
    """Key in the checkpoint -> name in the export.

    The attribute's name goes where there is exactly one model. Raises `RunError` for a tensor
    that the layout does not name.
    """
    roots = {key.partition(".")[0] for key in keys}
    names = {key: key.partition(".")[2] if len(roots) == 1 else key for key in keys}
    if target.format == "pt" or target.layout is None:
        return names
    layout = target.layout[0]
    if unnamed := [name for name in names.values() if name not in layout]:
        raise RunError(
            f"hugging_face_layout names {len(layout)} tensors, but not {unnamed[0]}. Add it there."
        )
    return {key: layout[name] for key, name in names.items()}


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
