"""A buffer gets its values in the constructor, and nowhere else.

Constructors run on the meta device, where nothing can be computed. When memory is real it
holds garbage, which `init_weights` has to replace. No checkpoint holds a buffer with
`persistent=False`: tables of positions, masks and schedules are filled in `init_weights`, or
in a `reset_parameters` that it calls, or never. The runtime refuses to train then.

Bad:

    def __init__(self, dim):
        super().__init__()
        self.register_buffer("frequencies", table(dim), persistent=False)

Good:

    def __init__(self, dim):
        super().__init__()
        self.register_buffer("frequencies", torch.empty(dim // 2), persistent=False)

    def reset_parameters(self):
        self.frequencies.copy_(table(self.dim))

How to fix: write the values in a method that `init_weights` calls. Without `init_weights` the
runtime calls every module's `reset_parameters`.
"""

from collections.abc import Iterator

from ..facts import (
    Act,
    Attribute,
    Behaviour,
    Call,
    Constant,
    Kind,
    Match,
    Path,
    Project,
    Severity,
    Term,
    Trace,
    is_on_cpu,
)

CODE = "DT306"
NAME = "buffer-not-refilled"
SEVERITY: Severity = "warning"

ALL = ("buffers", "named_buffers", "state_dict", "__dict__", "_buffers")
"""Names that reach every buffer."""

_NET = """
    import torch
    from torch import nn

    class Positions(nn.Module):
        def __init__(self, dim):
            super().__init__()
            self.dim = dim
            self.register_buffer("table", torch.arange(dim), persistent=False)
            self.register_buffer("seen", torch.zeros(1))

        def refill(self):
            self.table.copy_(torch.arange(self.dim))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(2, 2)
            self.positions = Positions(8)

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = Net()
"""

PASSES = (
    _NET
    + """
        def init_weights(self):
            self.model.head.reset_parameters()
            self.model.positions.refill()
    """,
    _NET
    + """
        def init_weights(self):
            for module in self.model.modules():
                if isinstance(module, Positions):
                    module.table[:] = torch.arange(module.dim)
    """,
    _NET
    + """
        def init_weights(self):
            for name, buffer in self.model.named_buffers():
                buffer.zero_()
    """,
    """
    import torch
    from torch import nn

    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.empty(4), persistent=False)

        def reset_parameters(self):
            self.table.copy_(torch.arange(4))

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = Positions()
    """,
)

MATCHES = (
    _NET
    + """
        def init_weights(self):
            self.model.head.reset_parameters()
    """,
    _NET,
    _NET
    + """
        def init_weights(self):
            for parameter in self.model.parameters():
                nn.init.normal_(parameter, std=0.02)
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        behaviour = trainer.behaviour
        buffers = [found for t in behaviour.named("configure_models") for found in _buffers(t)]
        if not buffers or trainer.open is not None or _is_unknown(behaviour):
            continue
        for act, owner, name in buffers:
            if is_on_cpu(act) or _may_be_filled(owner, name, behaviour):
                continue
            yield Match(
                act.place,
                f'Buffer "{name}" of {owner} gets its values on the meta device alone: no '
                "checkpoint holds it, and init_weights does not fill it.",
                f"Write {owner}.{name} in init_weights, or in a method that it calls.",
                notes=act.notes[:-1],
            )


def _buffers(trace: Trace) -> Iterator[tuple[Act, str, str]]:
    """The buffers that constructors register with `persistent=False`: owner and name."""
    for act, call in trace.calls("register_buffer"):
        lasting = call.argument(2, "persistent")
        receiver = call.receiver
        if not isinstance(lasting, Constant) or lasting.value is not False:
            continue
        value = call.argument(1, "tensor")
        if not isinstance(receiver, Path) or (isinstance(value, Constant) and value.value is None):
            continue
        first = call.argument(0, "name")
        for name in first.options() if first is not None else ():
            if isinstance(name, Constant) and isinstance(name.value, str):
                yield act, receiver.dotted, name.value


def _is_unknown(behaviour: Behaviour) -> bool:
    """Whether `init_weights` leaves something to code that is not shown."""
    models = [model.path for model in behaviour.models.values()]
    return any(
        trace.is_open or trace.hands_over(*models) is not None
        for trace in behaviour.named("init_weights")
    )


def _may_be_filled(owner: str, name: str, behaviour: Behaviour) -> bool:
    """Whether what runs after the memory is there writes to a buffer, or may do so."""
    kind = behaviour.kinds.get(owner)
    if kind is None or kind.is_open:
        return True
    if any("." in base and not base.startswith("torch.nn.") for base in kind.bases):
        return True  # It may have methods that are not shown.
    trace = behaviour.traces.get("init_weights")
    if trace is None:
        return "reset_parameters" in kind.methods
    return any(
        _is_unseen(act.term, kind, behaviour)
        or (act.kind == "call" and _touches(act.term, name))
        or (act.target is not None and _touches(act.target, name))
        for act in trace.acts
    )


def _is_unseen(term: Term, kind: Kind, behaviour: Behaviour) -> bool:
    """Whether a method that the owner has is called on something that is not known."""
    if not isinstance(term, Call) or term.last not in kind.methods:
        return False
    owner = term.receiver
    if isinstance(owner, Path):
        return owner.last != "**" and owner.dotted not in behaviour.kinds
    return isinstance(term.function, Attribute)


def _touches(term: Term, name: str) -> bool:
    """Whether something is made of a buffer of this name, or of what reaches all buffers."""
    return any(_is_buffer(part, name) for part in term.walk())


def _is_buffer(term: Term, name: str) -> bool:
    if isinstance(term, Call):
        path = term.function.dotted if isinstance(term.function, Path) else ""
        return term.last in (*ALL, "setattr") or name in path.split(".")[:-1]
    if isinstance(term, Path):
        return term.last in (name, *ALL) or term.dotted.endswith(f".{name}.data")
    if isinstance(term, Attribute):
        return term.name in (name, *ALL)
    return isinstance(term, Constant) and term.value == name
