"""How long a run trains, how often it validates, how its gradients are treated."""

from dataclasses import dataclass
from math import inf

from .errors import ConfigError, is_count, refuse_unless, refuse_unless_counts


@dataclass(kw_only=True)
class TrainingParameters:
    """Lengths are counted in optimizer steps, however many batches one step accumulates.

    Raises `ConfigError` for a length, cadence or factor that cannot be.
    """

    n_epochs: int | float | None = None
    """None: one epoch, or as many as `max_steps` takes. `float("inf")` never ends."""

    train_steps_per_epoch: int | None = None
    """None: until the training loader ends."""

    max_steps: int | None = None
    """End the run after so many optimizer steps, wherever that falls."""

    val_steps_per_epoch: int | None = None
    """Batches of one validation. None: the whole validation loader. 0: no validation."""

    val_every_n_steps: int | None = None
    """None: validate after every epoch."""

    num_sanity_val_steps: int = 0
    """Batches validated before training, so that a broken validation fails first."""

    gradient_accumulation_steps: int = 1
    """Batches per optimizer step."""

    gradient_clip_val: float | None = None
    """Largest norm of all gradients together; None: no clipping."""

    debug_collectives: int = 0
    """For so many steps, name the rank that calls other modules than the rest. Slow."""

    detect_anomaly: bool = False
    """End the run at a NaN in a gradient, with the operation that made it. Slow."""

    warn_on_sync: bool = False
    """Warn wherever a training step makes the host wait for its CUDA device."""

    startup_checks: bool = True
    """Look once at mesh, optimizers, batches and gradients, up to the first optimizer step."""

    def __post_init__(self) -> None:
        epochs = self.n_epochs
        refuse_unless(
            epochs is None or epochs == inf or is_count(epochs, 1),
            "n_epochs",
            epochs,
            'a whole number from 1, float("inf") or None',
        )
        limits = {
            "train_steps_per_epoch": 1,
            "max_steps": 1,
            "val_steps_per_epoch": 0,
            "val_every_n_steps": 1,
        }
        refuse_unless_counts(self, limits, optional=True)
        numbers = {
            "num_sanity_val_steps": 0,
            "gradient_accumulation_steps": 1,
            "debug_collectives": 0,
        }
        refuse_unless_counts(self, numbers)
        clip = self.gradient_clip_val
        if clip is not None and not (isinstance(clip, (int, float)) and clip > 0):
            raise ConfigError(
                "DT114",
                f"gradient_clip_val={clip!r} is not possible.",
                "Use a number above 0, or None for no clipping.",
            )

    @property
    def epochs(self) -> float:
        """How many epochs to run at most."""
        if self.n_epochs is not None:
            return self.n_epochs
        return 1 if self.max_steps is None else inf
