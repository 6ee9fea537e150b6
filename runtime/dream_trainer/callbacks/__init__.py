"""Behaviour that cuts across trainers: one concern a file."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .callback import Callback, CallbackCollection, RankZeroCallback
from .logger import LoggerCallback
from .progress_bar import ProgressBar

if TYPE_CHECKING:
    from .checkpoint import AsyncCheckpointCallback, CheckpointCallback
    from .export import ExportCallback
    from .load_partial_checkpoint import LoadPartialCheckpointCallback

LATE = {
    "AsyncCheckpointCallback": "checkpoint",
    "CheckpointCallback": "checkpoint",
    "ExportCallback": "export",
    "LoadPartialCheckpointCallback": "load_partial_checkpoint",
}
"""Imported when they are used, for what they import in turn."""

__all__ = [
    "AsyncCheckpointCallback",
    "Callback",
    "CallbackCollection",
    "CheckpointCallback",
    "ExportCallback",
    "LoadPartialCheckpointCallback",
    "LoggerCallback",
    "ProgressBar",
    "RankZeroCallback",
]


def __getattr__(name: str) -> Any:
    if name not in LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{LATE[name]}", __name__), name)
