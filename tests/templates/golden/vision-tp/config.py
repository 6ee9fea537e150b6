"""Every size and every scale of my-project: one function for each way to run it."""

from dataclasses import dataclass

from dream_trainer import DreamTrainerConfig
from dream_trainer.configs import CheckpointParameters, DeviceParameters, TrainingParameters


@dataclass(kw_only=True)
class Config(DreamTrainerConfig):
    """The sizes of the model and of its data. Raises `ValueError` where they do not fit."""

    project: str = "my-project"

    image_size: int = 8
    """Height and width of an image, which has one channel."""

    patch_size: int = 2
    """Height and width of a token."""

    num_classes: int = 10

    dim: int = 64
    """Width of the residual stream."""

    num_layers: int = 4

    num_heads: int = 4
    """Attention heads; each is dim / num_heads wide."""

    hidden_dim: int = 256
    """Inner width of the feed-forward blocks."""

    validation_share: float = 0.2
    """The images kept out of training."""

    batch_size: int = 32
    """Images a rank reads at a time."""

    learning_rate: float = 1e-3

    weight_decay: float = 0.05

    def __post_init__(self) -> None:
        if self.image_size % self.patch_size:
            raise ValueError(
                f"image_size={self.image_size} must be a multiple of patch_size={self.patch_size}."
            )
        if self.dim % self.num_heads:
            raise ValueError(f"dim={self.dim} must be a multiple of num_heads={self.num_heads}.")
        self.check_degree()

    def check_degree(self) -> None:
        """Raise `ValueError` where the model cannot be split as `device_parameters` says."""
        degree = self.device_parameters.tensor_parallel
        # What "auto" comes to is known at start-up.
        ranks = 1 if degree == "auto" else degree
        for name in ("num_heads", "hidden_dim"):
            if getattr(self, name) % ranks:
                raise ValueError(
                    f"{name}={getattr(self, name)} must be a multiple of "
                    f"tensor_parallel={ranks}: each rank takes an equal share."
                )


def tp_config() -> Config:
    """Every layer split over two ranks."""
    return Config(
        device_parameters=DeviceParameters(
            tensor_parallel=2, param_dtype="bfloat16", compile_model=False
        ),
        training_parameters=TrainingParameters(n_epochs=10),
        checkpoint_parameters=CheckpointParameters(
            checkpoint_every_n_train_epochs=1, monitor="val/loss", resume_mode="min"
        ),
    )


def single_config() -> Config:
    """One device, in full precision."""
    return Config(
        device_parameters=DeviceParameters.SINGLE_DEVICE(
            param_dtype="float32", compile_model=False
        ),
        training_parameters=TrainingParameters(n_epochs=10),
        checkpoint_parameters=CheckpointParameters(
            checkpoint_every_n_train_epochs=1, monitor="val/loss", resume_mode="min"
        ),
    )
