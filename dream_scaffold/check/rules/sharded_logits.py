"""Logits are sharded over classes, and an ordinary cross-entropy is computed of them.

A `ColwiseParallel()` output layer leaves each rank the logits of its own classes. An ordinary
cross-entropy needs all of them: with a DTensor it fails (`got mixed torch.Tensor and
DTensor`), with the local part targets are out of bounds, or, if they happen to be small,
the loss is silently another number on each rank.

Bad:

    plan = {"head": ColwiseParallel()}
    ...
    loss = F.cross_entropy(self.model(batch["input"]), batch["target"])

Good:

    plan = {"head": ColwiseParallel(output_layouts=Replicate())}

    # or, to keep the logits sharded, in config.py, with use_local_output=False in the plan:
    DeviceParameters.FSDP(tensor_parallel=8, loss_parallel=True)

How to fix: give the head `output_layouts=Replicate()`, or compute the loss within
`loss_parallel()`, as `loss_parallel=True` does. See docs/parallelism.md.
"""

from collections.abc import Iterator

from ..facts import (
    Act,
    Behaviour,
    Call,
    Either,
    Match,
    Path,
    Project,
    Severity,
    Term,
    is_split,
    layouts,
    plans,
    resolve,
)

CODE = "DT215"
NAME = "sharded-logits"
SEVERITY: Severity = "error"

LOSSES = ("cross_entropy", "nll_loss", "CrossEntropyLoss", "NLLLoss")

_NET = """
    import torch.nn.functional as F
    from torch import nn
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, loss_parallel, parallelize_module
    )

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(16, 8)
            self.head = nn.Linear(8, 16)

        def forward(self, tokens):
            return self.head(self.embed(tokens))
"""

_CONFIG = """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(compile_model=False, tensor_parallel=2)
    )
"""

_STEP = """
        def training_step(self, batch, batch_idx):
            logits = self.model(batch["input"]).float()
            loss = F.cross_entropy(logits.flatten(0, 1), batch["target"])
            self.backward(loss)
            return {"loss": loss}
"""

_TRAINER = """
    class MyTrainer(Complete):
        def configure_models(self):
            self.model = Net()

        def apply_tensor_parallel(self, tp_mesh):
"""

PASSES = (
    _NET
    + _CONFIG
    + _TRAINER
    + """
            head = ColwiseParallel(output_layouts=Replicate())
            parallelize_module(self.model, tp_mesh, {"head": head})
    """
    + _STEP,
    _NET
    + _CONFIG
    + _TRAINER
    + """
            parallelize_module(self.model, tp_mesh, {"head": ColwiseParallel()})

        def training_step(self, batch, batch_idx):
            with loss_parallel():
                loss = F.cross_entropy(self.model(batch["input"]), batch["target"])
                self.backward(loss)
            return {"loss": loss}
    """,
    _NET
    + _TRAINER
    + """
            whole = not self.config.device_parameters.loss_parallel
            head = ColwiseParallel(output_layouts=Replicate() if whole else Shard(-1))
            parallelize_module(self.model, tp_mesh, {"head": head})
    """
    + _STEP
    + _CONFIG,
    _NET
    + _TRAINER
    + """
            head = ColwiseParallel(use_local_output=False)
            parallelize_module(self.model, tp_mesh, {"head": head})
    """
    + _STEP
    + """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(
            compile_model=False, tensor_parallel=2, loss_parallel=True
        )
    )
    """,
    _NET
    + _CONFIG
    + _TRAINER
    + """
            parallelize_module(self.model, tp_mesh, {"head": ColwiseParallel()})

        def training_step(self, batch, batch_idx):
            logits = gathered(self.model(batch["input"]))
            loss = F.cross_entropy(logits, batch["target"])
            return {"loss": loss}
    """,
)

MATCHES = (
    _NET
    + _CONFIG
    + _TRAINER
    + """
            parallelize_module(self.model, tp_mesh, {"head": ColwiseParallel()})
    """
    + _STEP,
    _NET
    + _CONFIG
    + _TRAINER
    + """
            plan = {}
            plan["head"] = ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
            parallelize_module(self.model, tp_mesh, plan)

        def loss_of(self, batch):
            return nn.functional.cross_entropy(self.model(batch["input"]), batch["target"])

        def training_step(self, batch, batch_idx):
            loss = self.loss_of(batch)
            self.backward(loss)
            return {"loss": loss}
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        behaviour = trainer.behaviour
        for path in _sharded_outputs(behaviour):
            for act, call in _losses(behaviour, path):
                for config in trainer.configs:
                    if not config.is_wide("tp"):
                        continue
                    if config.value("device_parameters.loss_parallel") is not False:
                        continue
                    yield Match(
                        act.place,
                        f"The logits of {path} are sharded over classes, the targets are not: "
                        f"`{call.spot.callee.text}` sees a part of the classes.",
                        "Give the head output_layouts=Replicate(), or compute the loss within "
                        "loss_parallel().",
                        config=config.name,
                        notes=act.notes,
                    )


def _sharded_outputs(behaviour: Behaviour) -> Iterator[str]:
    """The models whose output is that of a layer which leaves it sharded over its columns."""
    for trace in behaviour.named("apply_tensor_parallel"):
        for plan in plans(trace):
            if plan.path.count(".") != 1:
                continue
            for key, style in plan.styles.items():
                if _is_split_over_classes(style):
                    for layer in resolve(behaviour, plan.path, key) or ():
                        if _returns(behaviour, plan.path, layer):
                            yield plan.path


def _is_split_over_classes(style: Term) -> bool:
    """Whether a style leaves the output of a layer sharded over its columns."""
    if not isinstance(style, Call) or style.last != "ColwiseParallel" or style.arguments:
        return False
    return all(is_split(layout, -1) for layout in layouts(style, "output_layouts"))


def _returns(behaviour: Behaviour, path: str, layer: str) -> bool:
    """Whether what a model returns is the output of a layer.

    A forward is followed for one object of each class.
    """
    kind = behaviour.kinds.get(path)
    for other, forward in behaviour.forwards.items():
        if kind is not None and behaviour.kinds[other] is kind:
            own = other + layer.removeprefix(path)
            returned = [act.term for act in forward.returns]
            return bool(returned) and all(_is_of(term, own) for term in returned)
    return False


def _is_of(term: Term | None, layer: str) -> bool:
    """Whether a value is the output of a layer, but for its dtype or shape.

    A head that a stage of a pipeline lacks is a condition: `self.head(x) if self.head else x`.
    """
    if isinstance(term, Either):
        return any(_is_of(choice, layer) for choice in term.choices)
    while isinstance(term, Call):
        function = term.function
        if isinstance(function, Path):
            return function.dotted == layer
        if term.last not in ("float", "flatten", "view", "reshape", "contiguous", "transpose"):
            return False
        term = term.receiver
    return False


def _losses(behaviour: Behaviour, path: str) -> Iterator[tuple[Act, Call]]:
    """The losses that a step computes of a model's very output, outside any context."""
    for trace in behaviour.named("training_step"):
        for act, call in trace.calls(*LOSSES):
            if not _is_within_context(act) and _is_of(call.argument(0, "input"), path):
                yield act, call


def _is_within_context(act: Act) -> bool:
    """Whether a loss is computed in some context, which may be `loss_parallel()`."""
    return any(
        guard.kind == "with" and not guard.test.mentions("autocast") for guard in act.guards
    )
