"""Where the record of a run goes: always a file, and what tracks it besides."""

from importlib.util import find_spec

from ..configs import LoggingParameters, RunError, WandbLoggingParameters
from .jsonl import JsonlLogger
from .logger import Histogram, Logger, Run
from .media import Audio, Image, Media, Table

__all__ = [
    "Audio",
    "Histogram",
    "Image",
    "JsonlLogger",
    "Logger",
    "Media",
    "Run",
    "Table",
    "build_trackers",
    "raise_unless_installed",
]


def uses_wandb(parameters: LoggingParameters) -> bool:
    """Whether Weights & Biases is to track the run."""
    return isinstance(parameters, WandbLoggingParameters) and parameters.mode != "disabled"


def raise_unless_installed(parameters: LoggingParameters) -> None:
    """Raise `RunError` that names the package to install, before anything else is done."""
    needed = {
        "wandb": (uses_wandb(parameters), "WandbLoggingParameters", 'mode="disabled"'),
        "tensorboard": (parameters.tensorboard, "tensorboard=True", "tensorboard=False"),
    }
    for package, (is_used, fact, without) in needed.items():
        if parameters.enabled and is_used and find_spec(package) is None:
            raise RunError(
                f"{fact} needs the package {package}, which is not installed. "
                f"Run: pip install {package}, or set {without}."
            )


def build_trackers(parameters: LoggingParameters) -> list[Logger]:
    """What tracks the run besides its own file; not started yet."""
    trackers: list[Logger] = []
    if parameters.tensorboard:
        from .tensorboard import TensorBoardLogger

        trackers.append(TensorBoardLogger())
    if isinstance(parameters, WandbLoggingParameters) and uses_wandb(parameters):
        from .wandb import WandbLogger

        trackers.append(WandbLogger(parameters))
    return trackers
