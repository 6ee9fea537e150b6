"""The training runtime of this project: yours to read and to change.

A project imports from here, from `configs`, `callbacks` and `utils.cli`, and, where it cuts
its model into pipeline stages, from `parallel.pipeline`. `configs` and `contract` import no
torch; everything else is imported when first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import callbacks, configs
    from .configs import DreamTrainerConfig
    from .trainer import DreamTrainer

__version__ = "0.1.0"
__all__ = ["DreamTrainer", "DreamTrainerConfig", "callbacks", "configs"]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "DreamTrainer":
        return import_module(".trainer", __name__).DreamTrainer
    if name == "DreamTrainerConfig":
        return import_module(".configs", __name__).DreamTrainerConfig
    if name in ("callbacks", "configs"):
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
