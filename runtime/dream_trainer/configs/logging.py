"""What a run writes about itself."""

from dataclasses import dataclass
from typing import Literal, get_args

from .errors import refuse_unless, refuse_unless_counts

WandbMode = Literal["online", "offline", "disabled"]


@dataclass(kw_only=True)
class LoggingParameters:
    """Where the log goes and how often. `enabled=False` (`--no-log`) writes no file."""

    enabled: bool = True

    root_dir: str = "runs"
    """Each run gets `root_dir/experiment/`."""

    log_every_n_steps: int = 10
    """Optimizer steps between two lines. Values are read from the device only then."""

    tensorboard: bool = False
    """Write `root_dir/experiment/tensorboard/` as well. Needs the package tensorboard."""

    def __post_init__(self) -> None:
        refuse_unless_counts(self, {"log_every_n_steps": 1})


@dataclass(kw_only=True)
class WandbLoggingParameters(LoggingParameters):
    """`LoggingParameters` for a run that Weights & Biases tracks as well.

    Project, group and name of the run are `project`, `group` and `experiment` of the
    configuration. Needs the package wandb.
    """

    entity: str | None = None
    """The user or team that the run belongs to. None: the default of the key."""

    mode: WandbMode | None = None
    """None: what WANDB_MODE says, else online where there is a key, else offline."""

    tags: tuple[str, ...] = ()

    save_code: bool = True
    """Whether the script and git's state go along."""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = get_args(WandbMode)
        text = '"online", "offline", "disabled" or None'
        refuse_unless(self.mode is None or self.mode in allowed, "mode", self.mode, text)
