"""The trainers, from bare hooks to batteries included, and their configurations."""

from ..configs import AbstractTrainerConfig, BaseTrainerConfig, DreamTrainerConfig
from .abstract import AbstractTrainer
from .base import BaseTrainer
from .dream import DreamTrainer

__all__ = [
    "AbstractTrainer",
    "AbstractTrainerConfig",
    "BaseTrainer",
    "BaseTrainerConfig",
    "DreamTrainer",
    "DreamTrainerConfig",
]
