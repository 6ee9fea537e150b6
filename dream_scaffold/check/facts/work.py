"""Which hook a call is the work of, and which configurations call that hook."""

from collections.abc import Iterator

from .behaviour import Behaviour
from .project import Configuration, Trainer
from .terms import Call, Code, Constant, Foreign, Path, Term
from .traces import Act, is_within

VERBS = {
    "apply_pipeline_parallel": ("cut_model", "pipeline", "PipelineStage", "build_stage"),
    "apply_tensor_parallel": ("parallelize_module", "distribute_module"),
    "apply_activation_checkpointing": (
        "checkpoint",
        "checkpoint_forward",
        "checkpoint_wrapper",
        "apply_activation_checkpointing",
        "gradient_checkpointing_enable",
        "set_grad_checkpointing",
    ),
    "apply_compile": ("compile",),
    "apply_fully_shard": ("fully_shard", "FullyShardedDataParallel", "FSDP"),
    "apply_replicate": (
        "replicate",
        "replicate_with_fsdp",
        "DistributedDataParallel",
        "DDP",
        "DataParallel",
    ),
}
"""Hook -> the last names of the functions that do its work, in the order of the hooks."""

BEFORE_MEMORY = ("configure_models", *VERBS)
"""The hooks that see shapes only: tensors are on the meta device."""

_HOOKS = {name: hook for hook, names in VERBS.items() for name in names}
_METHODS = ("gradient_checkpointing_enable", "set_grad_checkpointing", "compile")


def work_of(call: Call, behaviour: Behaviour) -> str | None:
    """The hook whose work a call does; None for any other call."""
    hook = _HOOKS.get(call.last)
    if hook is None:
        return None
    if isinstance(call.function, Foreign):
        return hook if call.is_foreign("torch", "dream_trainer") else None
    owner = call.receiver
    if call.last not in _METHODS or not is_module(owner, behaviour):
        return None
    kind = behaviour.kinds.get(owner.dotted) if isinstance(owner, Path) else None
    return None if kind is not None and call.last in kind.methods else hook


def is_module(term: Term | None, behaviour: Behaviour) -> bool:
    """Whether a term is known to be a module: at a model's path, or just made."""
    if isinstance(term, Path):
        known = term.dotted in behaviour.kinds and behaviour.kinds[term.dotted].is_module
        return known or (model_of(term, behaviour) is not None and not _is_method(term, behaviour))
    if not isinstance(term, Call):
        return False
    if isinstance(term.function, Code):
        return term.function.kind == "class" and term.function.name in _module_names(behaviour)
    if term.name.startswith("torch.nn.") and term.last[:1].isupper():
        return term.last not in ("Parameter", "Buffer") and not term.last.endswith("Loss")
    return is_module(term.receiver, behaviour) if _keeps(term) else False


def _is_method(path: Path, behaviour: Behaviour) -> bool:
    owner = behaviour.kinds.get(path.dotted.rpartition(".")[0])
    return path.last == "forward" or (owner is not None and path.last in owner.methods)


def _keeps(call: Call) -> bool:
    names = ("to", "cuda", "cpu", "eval", "train", "half", "bfloat16", "float", "requires_grad_")
    return call.last in names


def _module_names(behaviour: Behaviour) -> set[str]:
    return {kind.name for kind in behaviour.kinds.values() if kind.is_module}


def model_of(term: Term | None, behaviour: Behaviour) -> str | None:
    """The name of the model that a path is, or lies in."""
    if not isinstance(term, Path) or not term.dotted.startswith("self."):
        return None
    name = term.dotted.split(".", 2)[1]
    return name if name in behaviour.models else None


def is_root(term: Term | None, behaviour: Behaviour) -> bool:
    """Whether a term is a whole model of the trainer."""
    if not isinstance(term, Path) or term.dotted.count(".") != 1:
        return False
    return model_of(term, behaviour) is not None


def _paths(behaviour: Behaviour) -> list[str]:
    return [model.path for model in behaviour.models.values()]


def callers(trainer: Trainer, *hooks: str) -> Iterator[tuple[Configuration, bool]]:
    """The configurations that call one of `hooks`, and whether they surely do."""
    for config in trainer.configs:
        needs = {config.hooks.get(hook, "unused") for hook in hooks}
        if needs != {"unused"}:
            yield config, "required" in needs


def targets(call: Call) -> list[Term]:
    """The modules that a call is given first: one, a display of them, or one of several."""
    first = call.argument(0, "module", "model")
    pending = [first] if first is not None else []
    found: list[Term] = []
    while pending:
        term = pending.pop()
        inner = getattr(term, "items", None)
        choices = list(inner) if isinstance(inner, tuple) else list(term.options())
        if choices == [term]:
            found.append(term)
        else:
            pending += choices
    return found


def is_on_cpu(act: Act) -> bool:
    """Whether an act happens within a device context of its own, off the meta device."""
    for guard in act.guards:
        if guard.kind != "with" or not isinstance(guard.test, Call):
            continue
        named = guard.test.argument(0, "type", "device")
        if guard.test.name == "torch.device":
            return not (isinstance(named, Constant) and named.value == "meta")
    return False


def is_conditional(act: Act) -> bool:
    """Whether an act hangs on a condition of the project's own."""
    return any(guard.kind in ("if", "else", "after", "except") for guard in act.guards)


def are_exclusive(one: Act, other: Act) -> bool:
    """Whether two acts may lie on different branches of one condition."""
    return any(
        guard.test is rival.test and guard.kind != rival.kind
        for guard in one.guards
        for rival in other.guards
        if {guard.kind, rival.kind} <= {"if", "else", "after", "try", "except"}
    )


def touches_model(term: Term | None, behaviour: Behaviour) -> bool:
    """Whether a term is a model, a part of one, or a display of such."""
    if term is None:
        return False
    return any(is_within(term, path) for path in _paths(behaviour))


def shown(call: Call) -> str:
    """A call as a message shows it: as it is written, where that is short."""
    text = call.spot.text
    return text if len(text) <= 60 and "\n" not in text else f"{call.spot.callee.text}(...)"
