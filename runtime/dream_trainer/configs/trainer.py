"""The configuration that a project's own configuration derives from."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .checkpoint import CheckpointParameters
from .device import DeviceParameters
from .fault_tolerance import FaultToleranceParameters
from .logging import LoggingParameters
from .training import TrainingParameters

if TYPE_CHECKING:
    from ..callbacks import Callback


@dataclass(kw_only=True)
class AbstractTrainerConfig:
    """What names a run and makes it repeatable."""

    project: str = "dream"
    group: str = "default"

    experiment: str | None = None
    """Names the run and its folder. None: a readable name, the same on every rank."""

    seed: int = 42
    """The same seed gives the same initial weights on every mesh."""


@dataclass(kw_only=True)
class BaseTrainerConfig(AbstractTrainerConfig):
    """What lays a run out over devices and time."""

    device_parameters: DeviceParameters = field(
        default_factory=lambda: DeviceParameters.SINGLE_DEVICE(compile_model=False)
    )
    training_parameters: TrainingParameters = field(default_factory=TrainingParameters)
    callbacks: "Sequence[Callback] | None" = None
    """None: `ProgressBar`, `LoggerCallback` and, with `checkpoint_parameters`, theirs."""

    extra_callbacks: "Sequence[Callback]" = ()
    """Besides `callbacks`, or what None stands for: commands like `benchmark` add theirs here."""


@dataclass(kw_only=True)
class DreamTrainerConfig(BaseTrainerConfig):
    """Derive your configuration from this one: add your model's and data's fields."""

    logging_parameters: LoggingParameters = field(default_factory=LoggingParameters)
    checkpoint_parameters: CheckpointParameters | None = None
    fault_tolerance_parameters: FaultToleranceParameters | None = None
