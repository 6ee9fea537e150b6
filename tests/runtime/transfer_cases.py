"""Publishes weights from one mesh after the other, two ranks each; `test_weight_transfer` reads.

    torchrun --nproc-per-node=2 transfer_cases.py FOLDER

Each mesh publishes to FOLDER/MESH, in its format, and rank 0 writes FOLDER/MESH.pt: the
weights put together after the last step.
"""

import sys
from pathlib import Path
from typing import Any

import torch

from dream_trainer.callbacks import WeightTransferCallback
from dream_trainer.checkpoint.state import model_state
from dream_trainer.configs import DeviceParameters
from dream_trainer.utils.entrypoint import guarded
from tests.runtime import sized
from tests.runtime.ema_cases import whole

MESHES: dict[str, tuple[dict[str, Any], Any]] = {
    "fsdp": ({"dp_shard": 2}, "safetensors"),
    "interleaved": ({"pipeline_parallel": 2, "pipeline_schedule": "Interleaved1F1B"}, "pt"),
}


@guarded
def main() -> None:
    folder = Path(sys.argv[1])
    for name, (mesh, format) in MESHES.items():
        transfer = WeightTransferCallback(str(folder / name), every_n_steps=1, format=format)
        device = DeviceParameters(**sized.FLOAT32, **mesh)
        trainer = sized.Trainer(sized.config(device, callbacks=[transfer]))
        trainer.fit()
        weights = whole(model_state(trainer))
        if trainer.world.is_rank_zero:
            torch.save(weights, folder / f"{name}.pt")


if __name__ == "__main__":
    main()
