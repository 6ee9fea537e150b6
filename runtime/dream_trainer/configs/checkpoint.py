"""When a run saves its state, what it keeps, and from where it starts."""

from dataclasses import dataclass
from typing import Literal

from .errors import ConfigError, refuse_unless, refuse_unless_counts


@dataclass(kw_only=True)
class CheckpointParameters:
    """Read by the checkpoint callbacks; without one of them nothing is saved.

    The state lies in `root_dir/experiment/checkpoints/`. Without any cadence it is saved after
    every training epoch; at the end of a run, and before it stops early, it always is.
    Raises `ConfigError` for contradictions.
    """

    enable: bool = True
    """`--no-ckpt` turns it off: nothing is saved, and a signal to stop is not waited for."""

    root_dir: str = "runs"
    """A folder that all ranks share, or an fsspec URL such as "s3://bucket/runs"."""

    checkpoint_every_n_steps: int | None = None
    """Optimizer steps between two checkpoints."""

    checkpoint_every_n_minutes: float | None = None
    """By the clock of rank 0."""

    checkpoint_every_n_train_epochs: int | None = None

    checkpoint_every_n_val_epochs: int | None = None
    """Validations between two checkpoints."""

    keep_top_k: int = 5
    """How many checkpoints to keep; the newest one is kept besides."""

    monitor: str = "train/loss"
    """The logged value that ranks checkpoints."""

    resume_mode: Literal["min", "max", "last"] = "last"
    """Which are the best: those with the least or greatest `monitor`, or the newest.

    It decides what is kept, and what `export` and `init_from` take. A run always goes on from
    its newest checkpoint, so that nothing is lost.
    """

    resume: str | None = None
    """The experiment to go on with (`--resume`)."""

    auto_resume: Literal["restarts", "always", "never"] = "restarts"
    """When to go on without being told: where torchrun or Slurm restarts the job, or always."""

    init_from: str | None = None
    """Take the weights, and only them, from this checkpoint, run or file (`--init-from`)."""

    allow_missing: tuple[str, ...] = ()
    """Patterns of the weights that `init_from` need not hold, as in "head.*"."""

    allow_unexpected: tuple[str, ...] = ()
    """Patterns of what `init_from` may hold in vain."""

    time_limit_minutes: float | None = None
    """Save and stop, with exit code 75, so long after the ranks have met."""

    on_failed_save: Literal["continue", "stop"] = "continue"
    """What a full disk or a slow store does to the run. Bugs in hooks always end it."""

    save_timeout_seconds: int = 1800
    """How long the ranks wait for each other in a save, and a stage to host memory may take."""

    read_back: bool = False
    """Read every file again and compare before a checkpoint counts; sizes always are."""

    def __post_init__(self) -> None:
        cadences = {
            "checkpoint_every_n_steps": 1,
            "checkpoint_every_n_train_epochs": 1,
            "checkpoint_every_n_val_epochs": 1,
        }
        refuse_unless_counts(self, cadences, optional=True, code="DT108")
        for name in ("checkpoint_every_n_minutes", "time_limit_minutes"):
            value = getattr(self, name)
            above = value is None or (isinstance(value, (int, float)) and value > 0)
            refuse_unless(above, name, value, "a number above 0, or None", "DT108")
        refuse_unless_counts(self, {"keep_top_k": 1, "save_timeout_seconds": 1}, code="DT108")
        for name, words in {
            "resume_mode": ("min", "max", "last"),
            "auto_resume": ("restarts", "always", "never"),
            "on_failed_save": ("continue", "stop"),
        }.items():
            value = getattr(self, name)
            allowed = " or ".join(f'"{word}"' for word in words)
            refuse_unless(value in words, name, value, allowed, "DT108")
        if self.resume is not None and self.init_from is not None:
            raise ConfigError(
                "DT108",
                f"resume={self.resume!r} and init_from={self.init_from!r} exclude each other.",
                "Resume goes on with everything; init_from starts anew with other weights.",
            )

    @property
    def train_epochs(self) -> int | None:
        """Training epochs between two checkpoints; every one where no cadence is given."""
        cadences = (
            self.checkpoint_every_n_steps,
            self.checkpoint_every_n_minutes,
            self.checkpoint_every_n_val_epochs,
        )
        given = any(cadence is not None for cadence in cadences)
        return self.checkpoint_every_n_train_epochs or (None if given else 1)
