"""Every size and every scale of my-project: one function for each way to run it."""

from dataclasses import dataclass

from dream_trainer import DreamTrainerConfig
from dream_trainer.configs import CheckpointParameters, DeviceParameters, TrainingParameters


@dataclass(kw_only=True)
class Config(DreamTrainerConfig):
    """The sizes of the two models and of their data."""

    project: str = "my-project"

    image_size: int = 8
    """Height and width of an image, which has one channel."""

    noise_dim: int = 16
    """What an image is generated from: so many normal numbers."""

    hidden_dim: int = 128
    num_layers: int = 2

    validation_share: float = 0.2
    """The images kept out of training."""

    batch_size: int = 64
    """Images a rank reads at a time."""

    generator_rate: float = 5e-4
    """Learning rate of the generator."""

    critic_rate: float = 5e-4


def single_config() -> Config:
    """One device, in full precision."""
    return Config(
        device_parameters=DeviceParameters.SINGLE_DEVICE(
            param_dtype="float32", compile_model=False
        ),
        training_parameters=TrainingParameters(max_steps=1_000, val_every_n_steps=200),
        checkpoint_parameters=CheckpointParameters(
            checkpoint_every_n_steps=200, monitor="val/gap", resume_mode="min"
        ),
    )
