"""Behaviour that cuts across trainers: one concern a file."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .callback import Callback, CallbackCollection, RankZeroCallback
from .logger import LoggerCallback
from .progress_bar import ProgressBar

if TYPE_CHECKING:
    from .benchmark import BenchmarkCallback
    from .checkpoint import AsyncCheckpointCallback, CheckpointCallback
    from .ema import EMACallback
    from .export import ExportCallback
    from .fault_tolerance import FaultToleranceCallback
    from .fp8 import Fp8Quantization
    from .garbage_collection import GarbageCollectionCallback
    from .graph_breaks import FindGraphBreaksCallback
    from .load_partial_checkpoint import LoadPartialCheckpointCallback
    from .lr_logger import LRLoggerCallback
    from .media_logger import MediaLoggerCallback
    from .metric_logger import MetricLoggerCallback
    from .model_watch import ModelWatchCallback
    from .optimize_fsdp import OptimizeFSDP
    from .profiler import ProfileCallback

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
    "BenchmarkCallback",
    "Callback",
    "CallbackCollection",
    "CheckpointCallback",
    "EMACallback",
    "ExportCallback",
    "FaultToleranceCallback",
    "FindGraphBreaksCallback",
    "Fp8Quantization",
    "GarbageCollectionCallback",
    "LRLoggerCallback",
    "LoadPartialCheckpointCallback",
    "LoggerCallback",
    "MediaLoggerCallback",
    "MetricLoggerCallback",
    "ModelSummary",
    "ModelWatchCallback",
    "OptimizeFSDP",
    "ProfileCallback",
    "ProgressBar",
    "RankZeroCallback",
    "TrainerSummary",
    "WeightTransferCallback",
]


def __getattr__(name: str) -> Any:
    if name not in LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{LATE[name]}", __name__), name)
