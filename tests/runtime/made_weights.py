"""Weights on disk in every form that can be loaded, made without a run."""

import shutil
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn

from dream_trainer.checkpoint.manifest import MANIFEST, Manifest, folder_of, name_of
from dream_trainer.checkpoint.store import Store


def drawn(model: nn.Module, seed: int = 5) -> dict[str, Tensor]:
    """Random values for all that `model` keeps, by its own names."""
    draws = torch.Generator().manual_seed(seed)
    return {k: torch.randn(v.shape, generator=draws) for k, v in model.state_dict().items()}


def under(root: str, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same, as the model that is attribute `root`."""
    return {f"{root}.{key}": tensor for key, tensor in weights.items()}


def write_checkpoint(
    runs: Path,
    state: dict[str, Tensor],
    *,
    step: int = 1,
    experiment: str = "run",
    metrics: dict[str, float] | None = None,
) -> Path:
    """A finished checkpoint of a run; beside the models it holds state of the runtime."""
    folder = Path(folder_of(str(runs), experiment)) / name_of(step)
    write_dcp(folder, state)
    store = Store(folder)
    manifest = Manifest(
        step=step,
        epoch=0,
        experiment=experiment,
        created=0.0,
        world_size=1,
        axes={},
        metrics=metrics or {},
        files={name: (size, store.checksum(name)) for name, size in store.files().items()},
    )
    store.write(MANIFEST, manifest.as_json())
    return folder


def write_dcp(folder: Path, state: dict[str, Tensor]) -> None:
    """The folder as DCP leaves it, without our manifest."""
    shutil.rmtree(folder, ignore_errors=True)
    own: dict[str, Any] = {
        "trainer.shared": {"epoch": 0},
        "trainer.optimizers.optimizer.weight.exp_avg": torch.zeros(2),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # That there is one process.
        dcp.save(state | own, checkpoint_id=folder, no_dist=True)
