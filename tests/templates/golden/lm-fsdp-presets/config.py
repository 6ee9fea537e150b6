"""Every size and every scale of my-project: one function for each way to run it."""

from dataclasses import dataclass

from dream_trainer import DreamTrainerConfig
from dream_trainer.configs import (
    CheckpointParameters,
    DeviceParameters,
    TrainingParameters,
    WandbLoggingParameters,
)


@dataclass(kw_only=True)
class Config(DreamTrainerConfig):
    """The sizes of the model and of its data. Raises `ValueError` where they do not fit."""

    project: str = "my-project"

    dim: int = 128
    """Width of the residual stream."""

    num_layers: int = 4

    num_heads: int = 4
    """Attention heads; each is dim / num_heads wide."""

    num_kv_heads: int = 2
    """Key and value heads, each shared by num_heads / num_kv_heads query heads."""

    hidden_dim: int = 384
    """Inner width of the feed-forward blocks."""

    vocab_size: int = 256
    """Tokens are bytes."""

    seq_len: int = 128
    """Tokens in one sample; the longest context the model sees."""

    rope_base: float = 10_000.0
    """Longest wavelength of the rotary position code, in units of 2 pi tokens."""

    text_files: tuple[str, ...] = ()
    """What to learn from. Empty: the manual that comes with Python."""

    validation_share: float = 0.1
    """The end of the text, kept out of training."""

    batch_size: int = 16
    """Samples a rank reads at a time."""

    learning_rate: float = 3e-3
    """The peak, reached after `warmup_steps` optimizer steps; then a cosine down to a tenth."""

    warmup_steps: int = 20

    weight_decay: float = 0.1

    def __post_init__(self) -> None:
        for name in ("dim", "num_layers", "num_heads", "num_kv_heads", "hidden_dim"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1.")
        if self.dim % (2 * self.num_heads):
            raise ValueError(
                f"dim={self.dim} must be a multiple of 2 * num_heads={2 * self.num_heads}: "
                "rotary positions turn the features of a head in pairs."
            )
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads={self.num_heads} must be a multiple of "
                f"num_kv_heads={self.num_kv_heads}: every key head serves as many queries."
            )
        if self.vocab_size < 256:
            raise ValueError(f"vocab_size={self.vocab_size} must be at least 256, one per byte.")
        if not 0 < self.validation_share < 1:
            raise ValueError(f"validation_share={self.validation_share} must lie between 0 and 1.")
        self.check_degrees()

    def check_degrees(self) -> None:
        """Raise `ValueError` where the model cannot be split as `device_parameters` says."""
        device = self.device_parameters
        # What "auto" comes to is known at start-up.
        tensor = 1 if device.tensor_parallel == "auto" else device.tensor_parallel
        context = 1 if device.context_parallel == "auto" else device.context_parallel
        pipeline = 1 if device.pipeline_parallel == "auto" else device.pipeline_parallel
        for name in ("num_kv_heads", "hidden_dim"):
            if getattr(self, name) % tensor:
                raise ValueError(
                    f"{name}={getattr(self, name)} must be a multiple of "
                    f"tensor_parallel={tensor}: each rank takes an equal share."
                )
        if context > 1 and self.seq_len % (2 * context):
            raise ValueError(
                f"seq_len={self.seq_len} must be a multiple of "
                f"2 * context_parallel={2 * context}: each rank takes two chunks."
            )
        if self.seq_len % (context * tensor):
            raise ValueError(
                f"seq_len={self.seq_len} must be a multiple of context_parallel * "
                f"tensor_parallel={context * tensor}: each rank takes an equal share."
            )
        stages = pipeline * device.stages_per_rank
        if pipeline > 1 and self.num_layers < stages:
            raise ValueError(
                f"num_layers={self.num_layers} must be at least {stages}: {pipeline} ranks of "
                f"the pipeline hold {stages} stages under {device.pipeline_schedule}."
            )

    @property
    def max_steps(self) -> int:
        """Optimizer steps of the run, over which the learning rate decays."""
        steps = self.training_parameters.max_steps
        if steps is None:
            raise ValueError("Set training_parameters.max_steps: the learning rate needs an end.")
        return steps


def fsdp_config() -> Config:
    """Parameters, gradients and optimizer state sharded over all ranks."""
    return Config(
        device_parameters=DeviceParameters.FSDP(param_dtype="bfloat16", compile_model=False),
        training_parameters=TrainingParameters(
            max_steps=200, val_every_n_steps=50, gradient_clip_val=1.0
        ),
        logging_parameters=WandbLoggingParameters(),
        checkpoint_parameters=CheckpointParameters(
            checkpoint_every_n_steps=50, monitor="val/loss", resume_mode="min"
        ),
    )


def single_config() -> Config:
    """One device, in full precision."""
    return Config(
        device_parameters=DeviceParameters.SINGLE_DEVICE(
            param_dtype="float32", compile_model=False
        ),
        training_parameters=TrainingParameters(
            max_steps=200, val_every_n_steps=50, gradient_clip_val=1.0
        ),
        logging_parameters=WandbLoggingParameters(),
        checkpoint_parameters=CheckpointParameters(
            checkpoint_every_n_steps=50, monitor="val/loss", resume_mode="min"
        ),
    )
