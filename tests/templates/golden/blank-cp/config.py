"""Every size and every scale of my-project: one function for each way to run it."""

from dataclasses import dataclass

from dream_trainer import DreamTrainerConfig
from dream_trainer.configs import CheckpointParameters, DeviceParameters, TrainingParameters


@dataclass(kw_only=True)
class Config(DreamTrainerConfig):
    """The sizes of the model and of its data."""

    project: str = "my-project"

    input_dim: int = 32
    hidden_dim: int = 128
    num_layers: int = 4
    num_classes: int = 10

    num_samples: int = 16_384
    """Examples in one epoch, over all ranks."""

    batch_size: int = 64
    """Examples a rank reads at a time."""

    learning_rate: float = 3e-4


def cp_config() -> Config:
    """Every sequence split over two ranks, which shard the model as well."""
    return Config(
        device_parameters=DeviceParameters.FSDP(
            dp_shard=1, context_parallel=2, param_dtype="bfloat16", compile_model=False
        ),
        training_parameters=TrainingParameters(n_epochs=2),
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
        training_parameters=TrainingParameters(n_epochs=2),
        checkpoint_parameters=CheckpointParameters(
            checkpoint_every_n_train_epochs=1, monitor="val/loss", resume_mode="min"
        ),
    )
