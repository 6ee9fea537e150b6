"""A parallelism hook does something, but not what it is for.

The configuration asks for sharding, replication, tensor parallelism, checkpointing or
compilation, and the runtime leaves the work to the hook. A hook that never gets to the
call that does it leaves the model as it was: on every rank a copy of its own, which
trains alone, or the memory and speed of a mode that is not on.

Bad:

    def apply_fully_shard(self, config):
        for layer in self.model.layers:
            replicate(layer)

Good:

    def apply_fully_shard(self, config):
        for layer in self.model.layers:
            fully_shard(layer, **config)
        fully_shard(self.model, **config)

How to fix: call what does the work, as in docs/parallelism.md, or turn the mode off in
config.py. What a helper of the project does counts; a hook that hands the model to code
from elsewhere is not reported.
"""

from collections.abc import Iterator

from ..facts import (
    VERBS,
    Attribute,
    Behaviour,
    Call,
    Display,
    Foreign,
    Match,
    Path,
    Project,
    Severity,
    Trace,
    callers,
    touches_model,
)

CODE = "DT207"
NAME = "idle-hook"
SEVERITY: Severity = "error"

REMEDIES = {
    "apply_tensor_parallel": "Call parallelize_module(self.model, tp_mesh, plan).",
    "apply_activation_checkpointing": "Call checkpoint_forward(block) for each block.",
    "apply_compile": "Call block.compile() for each block.",
    "apply_fully_shard": "Call fully_shard(block, **config) for each block, then for the model.",
    "apply_replicate": "Call replicate(self.model, device_mesh=dp_replicate_mesh).",
}
"""A pipeline may be cut in many ways, none of which has a name."""

ALSO = {"apply_replicate": ("fully_shard",)}
"""Over a mesh of replicas this averages the same gradients."""

LOOKING = frozenset(
    {"modules", "named_modules", "children", "named_children", "parameters", "named_parameters"}
    | {"buffers", "named_buffers", "items", "values", "keys", "train", "eval", "named_models"}
    | {"requires_grad_", "get_submodule", "numel", "size", "dim"}
)
"""Methods that leave a model as it was."""

_SHARDS = """
    from torch import nn
    from torch.distributed._composable.replicate import replicate
    from torch.distributed.fsdp import fully_shard

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))

        def shard(self, options):
            for layer in self.layers:
                fully_shard(layer, **options)
            fully_shard(self, **options)

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(compile_model=False)
    )

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = Net()
"""

PASSES = (
    _SHARDS
    + """
        def apply_fully_shard(self, config):
            self.model.shard(config)
    """,
    _SHARDS
    + """
        def apply_fully_shard(self, config):
            from parallel import shard_everything as go
            go(self.model, config)
    """,
    _SHARDS
    + """
        def apply_fully_shard(self, config):
            fully_shard(self.model, **config)

        def apply_compile(self):
            print("not compiled")
    """,
    """
    import torch._functorch.config

    class MyTrainer(Complete):
        def apply_activation_checkpointing(self):
            torch._functorch.config.activation_memory_budget = 0.5

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters(checkpoint_activations=True, compile_model=False)
    )
    """,
)

MATCHES = (
    """
    from torch.distributed.tensor.parallel import parallelize_module

    class MyTrainer(Complete):
        def apply_tensor_parallel(self, tp_mesh):
            print("split over", tp_mesh.size())
            parallelize_module(self.model, tp_mesh, {})

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters(compile_model=False, tensor_parallel=2)
    )
    """,
    _SHARDS
    + """
        def apply_fully_shard(self, config):
            for layer in self.model.layers:
                replicate(layer)
    """,
    _SHARDS
    + """
        def apply_fully_shard(self, config):
            self.announce(config)

        def announce(self, config):
            count = sum(p.numel() for p in self.model.parameters())
            print(f"sharding {count} parameters")
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        for hook, remedy in REMEDIES.items():
            if hook not in trainer.methods or trainer.is_stub(hook):
                continue
            for trace in trainer.behaviour.named(hook):
                verbs = (*VERBS[hook], *ALSO.get(hook, ()))
                stops = any(act.is_certain for act in trace.of_kind("raise"))
                if trace.is_open or stops or _may_work(trace, verbs, trainer.behaviour):
                    continue
                for config, certain in callers(trainer, hook):
                    yield Match(
                        trace.place,
                        f"{hook} never reaches {VERBS[hook][0]}: the model stays as it was.",
                        remedy,
                        certain=certain,
                        config=config.name,
                    )


def _may_work(trace: Trace, verbs: tuple[str, ...], behaviour: Behaviour) -> bool:
    """Whether a hook does its work, or something that may be it."""
    return any(
        (call.last in verbs and not _has_empty_plan(call)) or _is_unseen(call, behaviour)
        for _, call in trace.calls()
    ) or any(_changes(target) for target in (act.target for act in trace.of_kind("set")))


def _has_empty_plan(call: Call) -> bool:
    """Whether `parallelize_module` is told to leave every module as it is."""
    plan = call.argument(2, "parallelize_plan")
    return isinstance(plan, Display) and not plan.items and not plan.is_open


def _is_unseen(call: Call, behaviour: Behaviour) -> bool:
    """Whether a call may do anything: of a method or function that the source does not show."""
    if any(call.last in verbs for verbs in VERBS.values()):
        return False  # The work of another hook.
    function, given = call.function, (*call.arguments, *call.keywords.values())
    if isinstance(function, Path) and function.root == "self":
        return function.last not in LOOKING
    if isinstance(function, Path) and function.last in LOOKING:
        return False
    if call.is_foreign("builtins"):
        return call.last in ("setattr", "exec", "eval")
    if call.is_foreign("torch"):
        return any(touches_model(term, behaviour) for term in given)
    if isinstance(function, Attribute) and call.last in LOOKING:
        return False
    paths = [model.path for model in behaviour.models.values()]
    receiver = call.receiver
    if receiver is not None and (receiver.is_hidden or receiver.reads(*paths)):
        return True
    if not isinstance(function, (Attribute, Foreign)):
        return True
    return any(touches_model(term, behaviour) or term.is_hidden for term in given)


def _changes(target: object) -> bool:
    """Whether an assignment changes a module, or what torch is told."""
    return not (isinstance(target, Path) and target.dotted.count(".") == 1)
