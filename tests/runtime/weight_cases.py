"""Loads weights of every form, and exports them, on one mesh after the other.

    torchrun --nproc-per-node=N weight_cases.py FOLDER MESH ...

FOLDER holds what `test_weights` has put there. Each rank compares what it can see, and any
difference ends the run. Rank 0 writes FOLDER/told-MESH.json: for every form how much matched
and, summed over ranks, how many elements were read of how many that ranks hold; the errors.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from dream_trainer.callbacks import CallbackCollection
from dream_trainer.checkpoint import weights
from dream_trainer.checkpoint.export import Target, export_trained
from dream_trainer.checkpoint.sources import SlicedWeights, Weights, open_weights
from dream_trainer.checkpoint.state import model_state
from dream_trainer.configs import DeviceParameters, RunError
from dream_trainer.lifecycle import set_up
from dream_trainer.utils.entrypoint import guarded
from tests.runtime.sized import FLOAT32, Trainer, config

FORMS = ("runs/run", "bare", "model.pt", "nested.pt", "own.safetensors", "hugging-face")

MESHES: dict[str, dict[str, Any]] = {
    "fsdp": {"dp_shard": 2},
    "ddp": {"dp_replicate": 2},
    "tp": {"tensor_parallel": 2},
    "pp": {"pipeline_parallel": 2},
    "interleaved": {"pipeline_parallel": 2, "pipeline_schedule": "Interleaved1F1B"},
    "fsdp+tp": {"dp_shard": 2, "tensor_parallel": 2},
    "fsdp+pp": {"dp_shard": 2, "pipeline_parallel": 2},
    "tp+interleaved": {
        "tensor_parallel": 2,
        "pipeline_parallel": 2,
        "pipeline_schedule": "Interleaved1F1B",
    },
    "hsdp": {"dp_replicate": 2, "dp_shard": 2},
}


class Counting:
    """A tensor in a file that notes how many elements are read of it."""

    read = 0

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __getitem__(self, part: Any) -> Tensor:
        found: Tensor = self.tensor[part]
        Counting.read += found.numel()
        return found


def counted(source: str, **options: Any) -> Weights:
    found = open_weights(source, **options)
    if isinstance(found, SlicedWeights):
        found.tensors = {name: Counting(tensor) for name, tensor in found.tensors.items()}
    return found


def local(tensor: Tensor) -> Tensor:
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def total(value: int) -> int:
    box = torch.tensor(value)
    dist.all_reduce(box)
    return int(box)


def raise_unless_equal(trainer: Trainer, expected: dict[str, Tensor]) -> None:
    state = model_state(trainer)
    for key, tensor in state.items():
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if not torch.equal(whole, expected[key]):
            raise ValueError(f"{key} differs on rank {trainer.world.rank}")
    if weights.over_stages(trainer.world, state).keys() != expected.keys():
        raise ValueError("The stages together are not the model.")


def refused(trainer: Trainer, source: Path) -> str:
    """The one error that every rank gets."""
    try:
        weights.load_weights(trainer, str(source))
    except RunError as error:
        told: list[Any] = [None] * trainer.world.world_size
        dist.all_gather_object(told, str(error))
        if len(set(told)) > 1:
            raise ValueError(f"Ranks differ: {told}") from error
        return str(error)
    raise ValueError(f"{source} was loaded.")


def run(folder: Path, mesh: str) -> dict[str, Any]:
    device = DeviceParameters(**FLOAT32, **MESHES[mesh])
    trainer = Trainer(config(device))
    trainer.callbacks = CallbackCollection()
    set_up(trainer)
    expected = torch.load(folder / "expected.pt")
    held = total(sum(local(tensor).numel() for tensor in model_state(trainer).values()))
    told: dict[str, Any] = {}
    for form in FORMS:
        for tensor in model_state(trainer).values():
            local(tensor).fill_(7)
        Counting.read = 0
        matched = weights.load_weights(trainer, str(folder / form))
        raise_unless_equal(trainer, expected)
        told[form] = [str(matched), total(Counting.read), held]
    told["errors"] = [
        refused(trainer, folder / name) for name in ("short.pt", "wide.pt", "damaged/run", "none")
    ]
    for name in ("model.pt", "hugging-face"):
        output = folder / "exports" / mesh / name
        format: Any = "pt" if name == "model.pt" else "safetensors"
        export_trained(trainer, Target(output=output, format=format, shard_bytes=10_000))
    return told


@guarded
def main() -> None:
    folder = Path(sys.argv[1])
    weights.open_weights = counted
    for mesh in sys.argv[2:]:
        told = run(folder, mesh)
        if dist.get_rank() == 0:
            (folder / f"told-{mesh}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
