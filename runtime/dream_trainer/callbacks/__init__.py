"""Behaviour that cuts across trainers: one class a file."""

from .callback import Callback, CallbackCollection, RankZeroCallback
from .logger import LoggerCallback
from .progress_bar import ProgressBar

__all__ = [
    "Callback",
    "CallbackCollection",
    "LoggerCallback",
    "ProgressBar",
    "RankZeroCallback",
]
