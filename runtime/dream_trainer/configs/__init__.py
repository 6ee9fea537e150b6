"""Parameter dataclasses. Importing them imports no torch."""

from .axes import Axes, resolve_axes
from .checkpoint import CheckpointParameters
from .device import AXES, Comm, DeviceParameters
from .errors import ConfigError, HookError, RunError, Stopped
from .fault_tolerance import FaultToleranceParameters
from .logging import LoggingParameters, WandbLoggingParameters
from .trainer import AbstractTrainerConfig, BaseTrainerConfig, DreamTrainerConfig
from .training import TrainingParameters

__all__ = [
    "AXES",
    "AbstractTrainerConfig",
    "Axes",
    "BaseTrainerConfig",
    "CheckpointParameters",
    "Comm",
    "ConfigError",
    "DeviceParameters",
    "DreamTrainerConfig",
    "FaultToleranceParameters",
    "HookError",
    "LoggingParameters",
    "RunError",
    "Stopped",
    "TrainingParameters",
    "WandbLoggingParameters",
    "resolve_axes",
]
