"""A trained model is cast to 16 bits by hand.

The optimizer then trains 16-bit weights. A bfloat16 weight of 1.0 has steps of 0.0078: an
update below half of that is rounded away, so training slows down and stops without an error.
`param_dtype="bfloat16"` computes in bfloat16 and keeps float32 weights for the optimizer.
The runtime refuses 16-bit weights unless `allow_low_precision_params=True`.

Bad:

    def configure_models(self):
        self.model = Net().to(torch.bfloat16)

Good:

    def configure_models(self):
        self.model = Net()

    DeviceParameters.FSDP(param_dtype="bfloat16")

How to fix: leave the cast out and set `param_dtype`, or opt in with
`DeviceParameters(allow_low_precision_params=True)`. A frozen model may be cast.
"""

from collections.abc import Iterator

from ..facts import (
    BEFORE_MEMORY,
    Act,
    Call,
    Edit,
    Fix,
    Foreign,
    Match,
    Path,
    Project,
    Severity,
    Term,
    Trace,
    Trainer,
    is_module,
    model_of,
    shown,
)

CODE = "DT307"
NAME = "cast-by-hand"
SEVERITY: Severity = "warning"

LOW = frozenset({"bfloat16", "float16", "half"})

MAKES = ("from_config", "from_pretrained")
"""What makes a model of transformers, in a dtype of choice."""

CASTS = ("to", "bfloat16", "half", *MAKES)

_NET = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(2, 2)

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(compile_model=False)
    )

    class MyTrainer(Complete):
        def configure_optimizers(self):
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            return {self.model: self.optimizer}
"""

PASSES = (
    _NET
    + """
        def configure_models(self):
            self.model = Net().to(torch.float32)
            self.teacher = Net().to(torch.bfloat16)
    """,
    _NET
    + """
        def configure_models(self):
            self.model = Net()

        def training_step(self, batch, batch_idx):
            return {"loss": self.model(batch.to(torch.bfloat16)).half()}
    """,
    _NET.replace("compile_model=False", "compile_model=False, allow_low_precision_params=True")
    + """
        def configure_models(self):
            self.model = Net().bfloat16()
    """,
)

MATCHES = (
    _NET
    + """
        def configure_models(self):
            from transformers import AutoModel
            self.model = AutoModel.from_config(make_config(), torch_dtype=torch.bfloat16)
    """,
    _NET
    + """
        def configure_models(self):
            self.model = Net().to(torch.bfloat16)
    """,
    _NET
    + """
        def configure_models(self):
            self.model = Net()

        def init_weights(self):
            self.finish(self.model)

        def finish(self, net):
            net.head.reset_parameters()
            net.half()
    """,
    _NET
    + """
        def configure_models(self):
            self.model = Net()
            self.model = self.model.to(dtype=torch.float16)
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        behaviour = trainer.behaviour
        for trace in behaviour.named(*BEFORE_MEMORY, "init_weights"):
            for act, call in trace.calls(*CASTS):
                if not (call.last in LOW or _asks_for_low(call)):
                    continue
                known = call.last in MAKES or is_module(call.receiver, behaviour)
                if known and _is_trained(call, trace, trainer):
                    yield from _told(trainer, act, call)


def _asks_for_low(call: Call) -> bool:
    given = (*call.arguments, *call.keywords.values())
    return any(isinstance(term, Foreign) and term.last in LOW for term in given)


def _is_trained(call: Call, trace: Trace, trainer: Trainer) -> bool:
    """Whether what is cast is, or becomes, a model that is trained."""
    models = trainer.behaviour.models
    name = model_of(call.receiver, trainer.behaviour)
    if name is not None:
        return models[name].trained is True
    for act in trace.of_kind("set"):
        target = act.target
        if isinstance(target, Path) and _holds(act.term, call):
            name = model_of(target, trainer.behaviour)
            return name is not None and models[name].trained is True
    return False


def _holds(term: Term, call: Call) -> bool:
    """Whether a value is what a call returns, or a later form of it."""
    while isinstance(term, Call):
        if term is call:
            return True
        if term.receiver is None:
            return False
        term = term.receiver
    return False


def _told(trainer: Trainer, act: Act, call: Call) -> Iterator[Match]:
    receiver = call.spot.receiver
    fix = None
    if (
        receiver is not None
        and call.last not in MAKES
        and len(call.arguments) + len(call.keywords) <= 1
    ):
        edit = Edit(act.place, receiver.text)
        fix = Fix("Leave the cast out", (edit,), safe=False)
    for config in trainer.configs:
        if config.value("device_parameters.allow_low_precision_params") is False:
            yield Match(
                act.place,
                f"`{shown(call)}` makes a trained model one of 16 bits: steps below its "
                "precision are lost.",
                'Keep it float32 and set param_dtype="bfloat16", or opt in with '
                "DeviceParameters(allow_low_precision_params=True).",
                config=config.name,
                notes=act.notes,
                fix=fix,
            )
