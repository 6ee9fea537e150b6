"""Every size and every scale of my-project: one function for each way to run it."""

from dataclasses import dataclass

from dream_trainer import DreamTrainerConfig
from dream_trainer.configs import CheckpointParameters, DeviceParameters, TrainingParameters


@dataclass(kw_only=True)
class Config(DreamTrainerConfig):
    """Which model, on which data, and how much of it is trained."""

    project: str = "my-project"

    model: str = ""
    """A folder with config.json and safetensors, or a name on the Hugging Face hub.

    Empty: a small Llama with random weights, made on the spot, to try the project with.
    """

    lora_rank: int = 8
    """Width of the low-rank updates that are trained. 0: all weights are trained instead."""

    lora_alpha: float = 16.0
    """The updates count lora_alpha / lora_rank times."""

    data: str = ""
    """JSON lines with "prompt" and "answer". Empty: sums of two numbers, made on the spot."""

    seq_len: int = 64
    """Tokens of a prompt and its answer together; what is longer is cut."""

    validation_share: float = 0.1
    """The examples kept out of training."""

    batch_size: int = 16
    """Examples a rank reads at a time."""

    learning_rate: float = 3e-3


def fsdp_config() -> Config:
    """Parameters, gradients and optimizer state sharded over all ranks."""
    return Config(
        device_parameters=DeviceParameters.FSDP(param_dtype="bfloat16", compile_model=True),
        training_parameters=TrainingParameters(
            max_steps=300, val_every_n_steps=100, gradient_clip_val=1.0
        ),
        checkpoint_parameters=CheckpointParameters(
            checkpoint_every_n_steps=100, monitor="val/loss", resume_mode="min"
        ),
    )


def single_config() -> Config:
    """One device, in full precision."""
    return Config(
        device_parameters=DeviceParameters.SINGLE_DEVICE(
            param_dtype="float32", compile_model=False
        ),
        training_parameters=TrainingParameters(
            max_steps=300, val_every_n_steps=100, gradient_clip_val=1.0
        ),
        checkpoint_parameters=CheckpointParameters(
            checkpoint_every_n_steps=100, monitor="val/loss", resume_mode="min"
        ),
    )
