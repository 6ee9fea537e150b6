"""The torch-free part of the shipped runtime: its parameter classes and its hook contract.

Every rule about presets, axes and hooks is asked here, never written a second time.
"""

from typing import TYPE_CHECKING

from ..resources import load_runtime

if TYPE_CHECKING:
    from dream_trainer import configs, contract
else:
    configs = load_runtime("configs")
    contract = load_runtime("contract")

__all__ = ["TRAINERS", "configs", "contract"]

TRAINERS = ("DreamTrainer", "BaseTrainer", "AbstractTrainer")
"""The runtime's classes that a trainer derives from."""
