"""When a run saves its state and what it keeps."""

from dataclasses import dataclass
from typing import Literal


@dataclass(kw_only=True)
class CheckpointParameters:
    """Read by the checkpoint callbacks; without one of them nothing is saved."""

    enable: bool = True
    root_dir: str = "runs"
    resume_mode: Literal["min", "max", "last"] = "last"
    monitor: str = "train/loss"
    checkpoint_every_n_train_epochs: int | None = None
    checkpoint_every_n_val_epochs: int | None = None
    keep_top_k: int = 5
