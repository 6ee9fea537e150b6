"""Every hook a trainer may define: its arguments, what calls it, in which order.

The runtime obeys this table, `dream check` evaluates it and `dream new` writes stubs
from it. Standard library only.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from .configs.device import AXES, Degree, DeviceParameters

Need = Literal["always", "optional"]


@dataclass(frozen=True)
class Hook:
    """One method that the runtime calls on a trainer.

    `needed` is "always", "optional" (there is a default) or the names of the
    `DeviceParameters` fields that call it, any one of which is enough.
    """

    name: str
    parameters: tuple[str, ...]
    needed: Need | tuple[str, ...]
    purpose: str

    @property
    def call(self) -> str:
        """As messages show it: `apply_fully_shard(config)`."""
        return f"{self.name}({', '.join(self.parameters)})"


HOOKS: tuple[Hook, ...] = (
    Hook("configure_models", (), "always", "assign the models; runs on the meta device"),
    Hook(
        "apply_pipeline_parallel",
        ("pp_mesh",),
        ("pipeline_parallel",),
        "cut the models into stages",
    ),
    Hook(
        "apply_tensor_parallel",
        ("tp_mesh",),
        ("tensor_parallel",),
        "apply the models' tensor-parallel plans",
    ),
    Hook(
        "apply_activation_checkpointing",
        (),
        ("checkpoint_activations",),
        "recompute activations in the backward pass",
    ),
    Hook("apply_compile", (), ("compile_model",), "compile the models' blocks"),
    Hook(
        "apply_fully_shard",
        ("config",),
        ("dp_shard", "context_parallel", "force_fsdp"),
        "shard blocks, then roots",
    ),
    Hook(
        "apply_replicate",
        ("dp_replicate_mesh",),
        ("dp_replicate", "force_ddp"),
        "replicate the models",
    ),
    Hook("init_weights", (), "optional", "fill every parameter and buffer; memory is real"),
    Hook("configure_optimizers", (), "always", "return {model: optimizer}"),
    Hook("configure_schedulers", (), "optional", "return {optimizer: scheduler}"),
    Hook("configure_dataloaders", (), "always", "return the train and validation iterables"),
    Hook("configure_metrics", (), "optional", "assign metrics"),
    Hook(
        "context_parallel_buffers",
        ("batch",),
        ("context_parallel",),
        "name what is split along the sequence",
    ),
    Hook(
        "training_step",
        ("batch", "batch_idx"),
        "always",
        "forward, backward, step; return values to log",
    ),
    Hook("validation_step", ("batch", "batch_idx"), "optional", "values to average and log"),
    Hook("count_items", ("batch",), "optional", "what a batch weighs in means and throughput"),
    Hook("model_state_dict", (), "optional", "the model state that checkpoints hold"),
)
"""In the order in which a run first calls them."""

BY_NAME: dict[str, Hook] = {hook.name: hook for hook in HOOKS}


@dataclass(frozen=True)
class Problem:
    """What start-up refuses and `dream check` reports, in the same words."""

    code: str
    hook: str | None
    fact: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.fact} {self.remedy}"


def callers(hook: Hook, parameters: DeviceParameters, degrees: Mapping[str, Degree]) -> list[str]:
    """The `DeviceParameters` fields that call `hook`; empty where nothing does.

    `degrees` is `parameters.degrees`, where "auto" counts as wider than one rank, or
    the `sizes` of resolved `Axes`, to know what is called at that size.
    """
    if isinstance(hook.needed, str):
        return []
    if hook.name == "apply_replicate" and _shards(parameters, degrees):
        return []  # HSDP: `fully_shard` replicates by itself.
    axis_of = {name: axis for axis, name in AXES.items()}
    called = [
        name
        for name in hook.needed
        if (degrees[axis_of[name]] != 1 if name in axis_of else getattr(parameters, name))
    ]
    # An axis that only `force_ddp` or `force_fsdp` made wide is that switch's doing.
    own = [name for name in called if name not in axis_of or getattr(parameters, name) != 1]
    return own or called


def problems(
    parameters: DeviceParameters,
    degrees: Mapping[str, Degree],
    defined: Collection[str],
    trainer: str,
) -> list[Problem]:
    """Everything that stops class `trainer`, which defines the hooks `defined`, at start-up.

    In the order of `HOOKS`; `degrees` as in `callers`.
    """
    found = []
    for hook in HOOKS:
        if hook.name in defined:
            continue
        if hook.needed == "always":
            fact = f"Every run calls {hook.call}, which {trainer} does not define."
            found.append(Problem("DT206", hook.name, fact, f"Define it: {hook.purpose}."))
        elif names := callers(hook, parameters, degrees):
            settings = " and ".join(parameters.setting(name) for name in names)
            verb = "calls" if len(names) == 1 else "call"
            off = " and ".join(f"{name}={1 if name in AXES.values() else False}" for name in names)
            fact = f"{settings} {verb} {hook.call}, which {trainer} does not define."
            found.append(Problem("DT201", hook.name, fact, f"Define it, or set {off}."))
    return found + _unsupported(parameters, degrees)


def _unsupported(parameters: DeviceParameters, degrees: Mapping[str, Degree]) -> list[Problem]:
    if degrees["tp"] == 1 or degrees["dp_replicate"] == 1 or _shards(parameters, degrees):
        return []
    tensor_parallel = parameters.setting("tensor_parallel")
    fact = f"{tensor_parallel} beside replicated data parallelism averages wrong gradients."
    return [Problem("DT115", None, fact, "Use DeviceParameters.FSDP() or HSDP().")]


def _shards(parameters: DeviceParameters, degrees: Mapping[str, Degree]) -> bool:
    return parameters.force_fsdp or degrees["dp_shard"] != 1 or degrees["cp"] != 1
