"""A model is moved to a device by hand, before it has memory.

`configure_models` and the parallelism hooks see shapes: tensors are on the meta device. There
is nothing to move. `.to("cuda")` of a meta tensor fails, and `.to_empty()` gives every rank
the memory of the whole model, before it is sharded. The runtime gives memory once all hooks
have done their work, on the device of the rank.

Bad:

    def configure_models(self):
        self.model = Net().to(self.world.device)

Good:

    def configure_models(self):
        self.model = Net()

How to fix: leave the move out; `--fix` does it. Batches are moved by the runtime, too.
"""

from collections.abc import Iterator

from ..facts import (
    BEFORE_MEMORY,
    Act,
    Call,
    Constant,
    Edit,
    Fix,
    Foreign,
    Match,
    Project,
    Severity,
    Term,
    is_module,
    is_on_cpu,
    shown,
)

CODE = "DT303"
NAME = "moved-by-hand"
SEVERITY: Severity = "warning"

_NET = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(2, 2)
            self.scale = torch.ones(2).to("cpu")
"""

PASSES = (
    _NET
    + """
    class MyTrainer(Complete):
        def configure_models(self):
            self.model = Net()

        def init_weights(self):
            table = torch.arange(4).to(self.world.device)
            self.model.to(self.world.device)
    """,
    _NET
    + """
    class MyTrainer(Complete):
        def configure_models(self):
            self.model = Net().to(torch.bfloat16)
    """,
    _NET
    + """
    class MyTrainer(Complete):
        def configure_models(self):
            self.model = Net()
            self.options = self.config.to("dict")
            with torch.device("cpu"):
                self.teacher = Net().to("cpu")
    """,
)

MATCHES = (
    _NET
    + """
    class MyTrainer(Complete):
        def configure_models(self):
            self.model = Net().to(self.world.device)
    """,
    _NET
    + """
    class MyTrainer(Complete):
        def configure_models(self):
            model = nn.Sequential(nn.Linear(2, 2))
            self.model = model.cuda()
    """,
    _NET
    + """
    class MyTrainer(Complete):
        def configure_models(self):
            self.model = Net()

        def apply_fully_shard(self, config):
            self.prepare(self.model)

        def prepare(self, net):
            net.to_empty(device="cuda")
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        for trace in trainer.behaviour.named(*BEFORE_MEMORY):
            for act, call in trace.calls("to", "cuda", "to_empty", "cpu"):
                if call.last in ("to", "to_empty") and not _names_device(call):
                    continue
                if is_module(call.receiver, trainer.behaviour) and not is_on_cpu(act):
                    yield Match(
                        act.place,
                        f"`{shown(call)}` moves a model that is on the meta device and has no "
                        "memory yet.",
                        "Leave it out: the runtime gives memory after the parallelism hooks.",
                        notes=act.notes,
                        fix=_fix(act, call),
                    )


def _names_device(call: Call) -> bool:
    """Whether `.to()` is about a device, and not about a dtype alone."""
    return any(map(_is_device, (*call.arguments, *call.keywords.values())))


def _is_device(term: Term) -> bool:
    if isinstance(term, Constant) and term.value == "meta":
        return False
    if isinstance(term, Constant):
        return isinstance(term.value, (str, int)) and not isinstance(term.value, bool)
    if isinstance(term, Foreign):
        return False
    return term.mentions("device", "local_rank", "current_device")


def _fix(act: Act, call: Call) -> Fix | None:
    """What is moved, unmoved, where nothing else is asked for."""
    receiver = call.spot.receiver
    if receiver is None or call.is_open or len(call.arguments) + len(call.keywords) > 1:
        return None
    return Fix("Leave the move out", (Edit(act.place, receiver.text),))
