"""How a run is laid out over devices: one degree per mesh axis, precision, compilation.

Nothing here imports torch or reads the environment, so that `dream check` evaluates
the very same rules that a run obeys.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypedDict, Union

if TYPE_CHECKING:
    from typing import Self, Unpack

    import torch

from .errors import ConfigError, is_count, refuse_unless

Degree = Union[int, Literal["auto"]]
DType = Union[str, "torch.dtype"]

AXES: dict[str, str] = {
    "pp": "pipeline_parallel",
    "dp_replicate": "dp_replicate",
    "dp_shard": "dp_shard",
    "cp": "context_parallel",
    "tp": "tensor_parallel",
}
"""Mesh axis -> the field that sets its degree; outermost axis first."""

SCHEDULES = (
    "GPipe",
    "1F1B",
    "Interleaved1F1B",
    "LoopedBFS",
    "InterleavedZeroBubble",
    "ZBVZeroBubble",
    "DualPipeV",
)
"""Pipeline schedules; the last three split the backward pass to fill the bubble."""

OF_ONE_STAGE = ("GPipe", "1F1B")
"""Schedules under which a rank holds one stage of the pipeline; under the others, two."""

PARAM_DTYPES = ("float32", "bfloat16")


@dataclass(kw_only=True)
class Comm:
    """Time-outs of collectives, in seconds."""

    init_timeout_seconds: int = 300
    """Until the first optimizer step is done: compilation and slow file systems."""

    train_timeout_seconds: int = 300
    """From then on: the longest wait for another rank before the run is ended."""

    def __post_init__(self) -> None:
        for name in ("init_timeout_seconds", "train_timeout_seconds"):
            value = getattr(self, name)
            refuse_unless(is_count(value, 1), name, value, "a whole number of seconds, from 1")


class Options(TypedDict, total=False):
    """What every preset of `DeviceParameters` accepts beside its own degrees."""

    param_dtype: DType
    reduce_dtype: DType
    allow_low_precision_params: bool
    compile_model: bool
    compiled_autograd: bool
    checkpoint_activations: bool
    activation_memory_budget: float
    cpu_offload: bool
    async_tensor_parallel: bool | None
    loss_parallel: bool
    context_parallel_rotate_method: Literal["allgather", "alltoall"]
    pipeline_schedule: str
    pipeline_microbatches: int | None
    force_ddp: bool
    force_fsdp: bool
    comm: Comm
    error_if_nonfinite: bool


@dataclass(kw_only=True)
class DeviceParameters:
    """The degree of every mesh axis, and what is done to the model on it.

    A degree is a whole number, or "auto" for whatever the other axes leave. Only one
    axis can be "auto"; `tensor_parallel` may be a second one, and then takes the ranks
    of one node. Raises `ConfigError` where values contradict each other.
    """

    pipeline_parallel: Degree = 1
    dp_replicate: Degree = 1
    dp_shard: Degree = 1
    context_parallel: Degree = 1
    tensor_parallel: Degree = 1

    param_dtype: DType = "bfloat16"
    """What the forward pass computes in. Weights and optimizer state stay float32."""

    reduce_dtype: DType = "float32"
    """What gradients are averaged over ranks in."""

    allow_low_precision_params: bool = False
    """Let optimizers train weights of 16 bits, which lose steps below their precision."""

    compile_model: bool = True
    """Call `apply_compile`."""

    compiled_autograd: bool = False

    checkpoint_activations: bool = False
    """Call `apply_activation_checkpointing`."""

    activation_memory_budget: float = 1.0
    """Share of the activations that compiled code keeps, 0 to 1."""

    cpu_offload: bool = False
    """Keep sharded parameters and optimizer state in host memory."""

    async_tensor_parallel: bool | None = None
    """Overlap tensor-parallel collectives with compute; None: whenever compilation is on."""

    loss_parallel: bool = False

    context_parallel_rotate_method: Literal["allgather", "alltoall"] = "allgather"

    pipeline_schedule: str = "1F1B"

    pipeline_microbatches: int | None = None

    force_ddp: bool = False
    """Replicate where the degrees say shard, and call `apply_replicate` even on one rank."""

    force_fsdp: bool = False
    """Shard where the degrees say replicate, and call `apply_fully_shard` even on one rank."""

    comm: Comm = field(default_factory=Comm)

    error_if_nonfinite: bool = False
    """Stop at a gradient norm that is not finite. Costs a device sync on every step."""

    def __post_init__(self) -> None:
        for name in AXES.values():
            degree = getattr(self, name)
            if degree != "auto" and not is_count(degree, 1):
                raise ConfigError(
                    "DT104",
                    f"{name}={degree!r} is not a degree of parallelism.",
                    'Use a whole number from 1, or "auto".',
                )
        autos = [name for name in AXES.values() if getattr(self, name) == "auto"]
        if len([name for name in autos if name != "tensor_parallel"]) > 1:
            raise ConfigError(
                "DT101",
                f'{" and ".join(autos[:2])} are both "auto", but only one axis can take '
                "what the others leave.",
                "Give all but one of them a number.",
            )
        if self.force_ddp and self.force_fsdp:
            raise ConfigError(
                "DT105",
                "force_ddp=True and force_fsdp=True contradict each other.",
                "Set one of them to False.",
            )
        if self.async_tensor_parallel and self.tensor_parallel != 1 and not self.compile_model:
            raise ConfigError(
                "DT103",
                "async_tensor_parallel=True needs compile_model=True: it is a compiler pass.",
                "Turn compilation on, or leave async_tensor_parallel out.",
            )
        self._check_values()

    def _check_values(self) -> None:
        for name in ("param_dtype", "reduce_dtype"):
            dtype = str(getattr(self, name)).removeprefix("torch.")
            refuse_unless(
                dtype in PARAM_DTYPES, name, getattr(self, name), " or ".join(PARAM_DTYPES)
            )
            setattr(self, name, dtype)
        budget = self.activation_memory_budget
        is_share = isinstance(budget, (int, float)) and 0 <= budget <= 1
        refuse_unless(is_share, "activation_memory_budget", budget, "a share from 0 to 1")
        rotate = self.context_parallel_rotate_method
        refuse_unless(
            rotate in ("allgather", "alltoall"),
            "context_parallel_rotate_method",
            rotate,
            "allgather or alltoall",
        )
        schedule = self.pipeline_schedule
        known = f"one of {', '.join(SCHEDULES)}"
        refuse_unless(schedule in SCHEDULES, "pipeline_schedule", schedule, known)
        microbatches = self.pipeline_microbatches
        refuse_unless(
            microbatches is None or is_count(microbatches, 1),
            "pipeline_microbatches",
            microbatches,
            "a whole number from 1, or None",
        )

    @classmethod
    def SINGLE_DEVICE(cls, **options: "Unpack[Options]") -> "Self":
        """One process, one device."""
        return cls(**options)

    @classmethod
    def DDP(
        cls,
        *,
        dp_replicate: Degree = "auto",
        pipeline_parallel: Degree = 1,
        **options: "Unpack[Options]",
    ) -> "Self":
        """A full copy of the model on every rank."""
        return cls(dp_replicate=dp_replicate, pipeline_parallel=pipeline_parallel, **options)

    @classmethod
    def FSDP(
        cls,
        *,
        dp_shard: Degree = "auto",
        tensor_parallel: Degree = 1,
        context_parallel: Degree = 1,
        pipeline_parallel: Degree = 1,
        **options: "Unpack[Options]",
    ) -> "Self":
        """Parameters, gradients and optimizer state sharded over all ranks."""
        return cls(
            dp_shard=dp_shard,
            tensor_parallel=tensor_parallel,
            context_parallel=context_parallel,
            pipeline_parallel=pipeline_parallel,
            **options,
        )

    @classmethod
    def HSDP(
        cls,
        *,
        dp_shard: Degree,
        dp_replicate: Degree = "auto",
        tensor_parallel: Degree = 1,
        context_parallel: Degree = 1,
        pipeline_parallel: Degree = 1,
        **options: "Unpack[Options]",
    ) -> "Self":
        """Sharded over groups of `dp_shard` ranks, replicated over the groups."""
        return cls(
            dp_shard=dp_shard,
            dp_replicate=dp_replicate,
            tensor_parallel=tensor_parallel,
            context_parallel=context_parallel,
            pipeline_parallel=pipeline_parallel,
            **options,
        )

    @property
    def stages_per_rank(self) -> int:
        """How many stages of the pipeline a rank holds."""
        return 1 if self.pipeline_schedule in OF_ONE_STAGE else 2

    @property
    def degrees(self) -> dict[str, Degree]:
        """Mesh axis -> degree, with `force_ddp` and `force_fsdp` carried out."""
        degrees: dict[str, Degree] = {axis: getattr(self, name) for axis, name in AXES.items()}
        replicate, shard = degrees["dp_replicate"], degrees["dp_shard"]
        both: Degree = (
            replicate * shard if isinstance(replicate, int) and isinstance(shard, int) else "auto"
        )
        if self.force_ddp:
            degrees |= {"dp_replicate": both, "dp_shard": 1}
        elif self.force_fsdp:
            degrees |= {"dp_replicate": 1, "dp_shard": both}
        return degrees

    def setting(self, name: str) -> str:
        """The field as the user would write it: `dp_shard="auto"`."""
        value = getattr(self, name)
        return f'{name}="{value}"' if isinstance(value, str) else f"{name}={value!r}"
