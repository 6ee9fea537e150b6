"""What a run writes about itself."""

from dataclasses import dataclass

from .errors import is_count, refuse_unless


@dataclass(kw_only=True)
class LoggingParameters:
    """Where the log goes and how often. `enabled=False` (`--no-log`) writes no file."""

    enabled: bool = True

    root_dir: str = "runs"
    """Each run gets `root_dir/experiment/`."""

    log_every_n_steps: int = 10
    """Optimizer steps between two lines. Values are read from the device only then."""

    def __post_init__(self) -> None:
        every = self.log_every_n_steps
        refuse_unless(is_count(every, 1), "log_every_n_steps", every, "a whole number from 1")


@dataclass(kw_only=True)
class WandbLoggingParameters(LoggingParameters):
    """`LoggingParameters` for a run that Weights & Biases tracks as well."""
