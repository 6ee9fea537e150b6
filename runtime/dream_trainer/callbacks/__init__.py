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
    "BenchmarkCallback": "benchmark",
    "CheckpointCallback": "checkpoint",
    "EMACallback": "ema",
    "ExportCallback": "export",
    "FaultToleranceCallback": "fault_tolerance",
    "FindGraphBreaksCallback": "graph_breaks",
    "Fp8Quantization": "fp8",
    "GarbageCollectionCallback": "garbage_collection",
    "LRLoggerCallback": "lr_logger",
    "LoadPartialCheckpointCallback": "load_partial_checkpoint",
    "MediaLoggerCallback": "media_logger",
    "MetricLoggerCallback": "metric_logger",
    "ModelSummary": "model_summary",
    "ModelWatchCallback": "model_watch",
    "OptimizeFSDP": "optimize_fsdp",
    "ProfileCallback": "profiler",
    "TrainerSummary": "trainer_summary",
    "WeightTransferCallback": "weight_transfer",
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
