"""`training_step` goes round the forward of a replicated or sharded model.

DDP and FSDP hang on to the model's own call: gradients are averaged, and shards
gathered, where `self.model(...)` is called. `self.model.forward(...)`, a submodule or
another method goes past that. Under DDP nothing fails: replicas drift apart, and the copy
of rank 0 is saved.

Bad:

    features = self.model.encode(batch["x"])
    loss = self.model.forward(batch["x"])

Good:

    loss = self.model(batch["x"])

How to fix: call the model itself, and let its `forward` do what is to be done. Under FSDP
`register_fsdp_forward_method(self.model, "encode")` makes a method count.
"""

from collections.abc import Iterator

from ..facts import (
    Act,
    Behaviour,
    Call,
    Constant,
    Match,
    Model,
    Path,
    Project,
    Severity,
    Trace,
    Trainer,
    callers,
)

CODE = "DT508"
NAME = "forward-bypassed"
SEVERITY: Severity = "warning"

_HEAD = """
    from torch import nn
    from torch.distributed._composable.replicate import replicate

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.head = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x):
            return self.head(self.encode(x))

        def encode(self, x):
            return self.encoder(x)

        def loss(self, x):
            return self(x).mean()

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = Net()

        def apply_replicate(self, dp_replicate_mesh):
            replicate(self.model, device_mesh=dp_replicate_mesh)

        def training_step(self, batch, batch_idx):
"""

_DDP = """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.DDP(compile_model=False)
    )
"""

PASSES = (
    _HEAD
    + """
            return {"loss": self.model(batch)}
    """
    + _DDP,
    _HEAD
    + """
            return {"loss": self.model.loss(batch)}
    """
    + _DDP,
    _HEAD
    + """
            weights = sum(weight.sum() for weight in self.model.parameters())
            return {"loss": self.model(batch) + weights}
    """
    + _DDP,
    _HEAD
    + """
            return {"loss": self.model.encode(batch)}

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.SINGLE_DEVICE(compile_model=False)
    )
    """,
)

MATCHES = (
    _HEAD
    + """
            return {"loss": self.model.forward(batch)}
    """
    + _DDP,
    _HEAD
    + """
            return {"loss": self.model.encode(batch).mean()}
    """
    + _DDP,
    _HEAD
    + """
            net = self.model
            return {"loss": net.head(net.encoder(batch))}
    """
    + _DDP,
)

HOOKS = ("apply_replicate", "apply_fully_shard")


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        wrapped = list(callers(trainer, *HOOKS))
        for trace in trainer.behaviour.named("training_step") if wrapped else ():
            for model in trainer.behaviour.models.values():
                bypass = _bypass(trace, model, trainer)
                if bypass is not None:
                    act, call = bypass
                    yield Match(
                        act.place,
                        f"`{call.spot.callee.text}(...)` goes round self.{model.name}(...), where "
                        "gradients are averaged and shards are gathered.",
                        f"Call self.{model.name}(...).",
                        certain=any(sure for _, sure in wrapped),
                        config=wrapped[0][0].name,
                        notes=act.notes,
                    )


def _bypass(trace: Trace, model: Model, trainer: Trainer) -> tuple[Act, Call] | None:
    """The first call that goes past a model's own, where that is never called."""
    found: tuple[Act, Call] | None = None
    for act, call in trace.calls():
        function = call.function
        if not isinstance(function, Path):
            continue
        if function.dotted == model.path:
            return None
        if function.dotted == f"{model.path}.forward":
            return act, call
        if found is None and _computes(function, model, trainer.behaviour):
            found = act, call
    registered = found is not None and _is_registered(found[1], trainer.behaviour)
    handed = any(call.name == "self.pipeline" for _, call in trace.calls("pipeline"))
    return None if registered or handed or trace.hands_over(model.path) else found


def _computes(function: Path, model: Model, behaviour: Behaviour) -> bool:
    """Whether a call below a model is a method of its own class, or one of its modules."""
    if not function.dotted.startswith(f"{model.path}."):
        return False
    below = function.dotted.removeprefix(f"{model.path}.")
    if "." not in below and model.kind is not None and below in model.kind.methods:
        return below not in ("__init__", "init_weights", "reset_parameters")
    made = behaviour.attributes.get(function.dotted)
    is_torch = isinstance(made, Call) and made.name.startswith("torch.nn.")
    kind = behaviour.kinds.get(function.dotted)
    return is_torch or (kind is not None and kind.is_module)


def _is_registered(call: Call, behaviour: Behaviour) -> bool:
    return any(
        isinstance(given, Constant) and given.value == call.last
        for trace in behaviour.traces.values()
        for _, made in trace.calls("register_fsdp_forward_method")
        for given in made.arguments
    )
