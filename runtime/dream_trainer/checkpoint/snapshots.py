"""Weights handed to other processes while training goes on: numbered versions in a folder.

version-00000012.pt     or a folder of safetensors; whole as soon as it has its name
latest.json             {"version": 12, "step": 480, "name": "version-00000012.pt"}
"""

import json
import os
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..configs import RunError
from ..materialize import shortened
from .export import Format, Target, export_trained
from .sources import open_weights

if TYPE_CHECKING:
    from ..trainer import BaseTrainer

LATEST = "latest.json"
NAME = re.compile(r"version-(\d{8})(\.pt)?")


@dataclass(frozen=True)
class Version:
    """A published set of weights."""

    version: int
    """Counts up, also over a run that goes on from an earlier step."""

    step: int
    name: str


def newest(folder: str | Path) -> Version | None:
    """The newest version in `folder`; None before the first."""
    try:
        return Version(**json.loads((Path(folder) / LATEST).read_text()))
    except FileNotFoundError:
        return None


def publish(trainer: "BaseTrainer", folder: Path, format: Format, keep: int) -> Version:
    """Write the trainer's models as the next version; remove all but `keep`.

    `folder` is one that all ranks share. All ranks take part. Raises `RunError` on every rank.
    """
    world = trainer.world
    number = world.broadcast(max(_versions(folder), default=0) + 1)
    name = f"version-{number:08d}{'.pt' if format == 'pt' else ''}"
    export_trained(trainer, Target(output=folder / name, format=format))
    comm = trainer.config.device_parameters.comm  # An export is more patient than a step.
    world.set_timeout(
        comm.train_timeout_seconds if trainer.global_step else comm.init_timeout_seconds
    )
    made = Version(number, trainer.global_step, name)
    if world.is_rank_zero:
        unfinished = folder / f"{LATEST}.unfinished"
        unfinished.write_text(json.dumps(asdict(made)))
        os.replace(unfinished, folder / LATEST)
        for old, path in _versions(folder).items():
            if old <= number - keep:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    return made


def receive(folder: str | Path, module: nn.Module, known: int = 0, root: str = "") -> int:
    """Fill `module` with the newest version, if it is newer than `known`; returns which it holds.

    For a process besides the training: it needs no process group. `root` is the attribute of
    the model where the trainer has several. Dtypes are converted. Raises `RunError` where
    the module and the weights do not match.
    """
    while (found := newest(folder)) is not None and found.version > known:
        try:
            _load(Path(folder) / found.name, module, f"{root}." if root else "")
            return found.version
        except (RunError, OSError):
            if newest(folder) == found:
                raise  # Otherwise it was removed in the meantime, for a newer one.
    return known


@torch.no_grad()
def _load(path: Path, module: nn.Module, prefix: str) -> None:
    weights = open_weights(str(path))
    own: dict[str, Tensor] = {f"{prefix}{name}": t for name, t in module.state_dict().items()}
    theirs = {name for name in weights.shapes if name.startswith(prefix)}
    wrong = sorted(own.keys() ^ theirs) or [
        name for name, tensor in own.items() if tensor.shape != weights.shapes[name]
    ]
    if wrong:
        raise RunError(
            f"{path} and {type(module).__name__} differ in {shortened(wrong, 3)}. Receive into "
            "the model that is trained, and name it by root where there are several."
        )
    weights.read(own)


def _versions(folder: Path) -> dict[int, Path]:
    found = ((NAME.fullmatch(path.name), path) for path in folder.glob("version-*"))
    return {int(match[1]): path for match, path in found if match}
