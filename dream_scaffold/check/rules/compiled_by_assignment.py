"""A model is replaced by `torch.compile(model)`.

`torch.compile` returns a wrapper, whose parameters all begin with `_orig_mod.`. The keys of
checkpoints change with the switch `compile_model`, and a plain `load_state_dict` fails, or
with `strict=False` loads nothing. `model.compile()` compiles in place: same object, same
names.

Bad:

    def apply_compile(self):
        self.model = torch.compile(self.model)

Good:

    def apply_compile(self):
        for layer in self.model.layers:
            layer.compile()

How to fix: write `self.model.compile()`, with the same options; `--fix` does it. Blocks that
are alike are better compiled one by one: they share the compiled code. See
docs/parallelism.md.
"""

from collections.abc import Iterator

from ..facts import (
    Act,
    Behaviour,
    Call,
    Edit,
    Fix,
    Item,
    Match,
    Path,
    Place,
    Project,
    Severity,
    is_module,
    model_of,
    shown,
)

CODE = "DT212"
NAME = "compiled-by-assignment"
SEVERITY: Severity = "warning"

_HOOKS = ("configure_models", "apply_compile", "apply_fully_shard", "apply_replicate")

_NET = """
    import torch
    from torch import compile as speed_up, nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = Net()
"""

PASSES = (
    _NET
    + """
        def apply_compile(self):
            self.model.compile(mode="max-autotune")
            for layer in self.model.layers:
                layer.compile()
    """,
    _NET
    + """
        def apply_compile(self):
            self.loss = torch.compile(self.loss_of)

        def loss_of(self, logits, target):
            return (logits - target).square().mean()
    """,
    _NET
    + """
        def apply_compile(self):
            self.model.forward = torch.compile(self.model.forward)
    """,
)

MATCHES = (
    _NET
    + """
        def apply_compile(self):
            self.model = torch.compile(self.model)
    """,
    _NET
    + """
        def apply_compile(self):
            for index, layer in enumerate(self.model.layers):
                self.model.layers[index] = speed_up(layer, fullgraph=True)
    """,
    _NET
    + """
        def apply_compile(self):
            for name, layer in self.model.layers.named_children():
                layer = torch.compile(layer)
                self.model.layers.register_module(name, layer)
    """,
    """
    import torch
    from torch import nn

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = torch.compile(nn.Linear(2, 2)) if self.config.seed else nn.Linear(2, 2)
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        behaviour = trainer.behaviour
        for trace in behaviour.named(*_HOOKS):
            for act in trace.of_kind("set", "call"):
                call = _compiled(act, behaviour)
                if call is not None:
                    yield Match(
                        call.place,
                        f"`{shown(call)}` takes the model's place: every key of its "
                        "checkpoints begins with _orig_mod.",
                        "Compile in place: model.compile(), or block.compile() for each block.",
                        notes=act.notes,
                        fix=_fix(act, call),
                    )


def _compiled(act: Act, behaviour: Behaviour) -> Call | None:
    """The wrapper that an act puts where a module was."""
    if act.kind == "call":
        owner = act.term if isinstance(act.term, Call) else None
        if owner is None or owner.last not in ("register_module", "add_module"):
            return None
        terms = [owner.argument(1, "module")]
    else:
        target = act.target.of if isinstance(act.target, Item) else act.target
        if not isinstance(target, Path) or not (
            model_of(target, behaviour) or target.dotted in behaviour.kinds
        ):
            return None
        terms = list(act.term.options())
    for term in terms:
        if not isinstance(term, Call) or term.name != "torch.compile":
            continue
        if is_module(term.argument(0, "model"), behaviour):
            return term
    return None


def _fix(act: Act, call: Call) -> Fix | None:
    """The call in place of the assignment, where that is all that the statement does."""
    spot, first = call.spot, call.spot.arguments[0] if call.spot.arguments else None
    if act.kind != "set" or act.term is not call or first is None or len(spot.arguments) > 1:
        return None
    written, end = act.place, call.place
    if act.spot.text != first.text or written.line != end.line or written.path != end.path:
        return None
    options = ", ".join(f"{name}={value.text}" for name, value in spot.keywords.items())
    place = Place(written.path, written.line, written.column, end.end_line, end.end_column)
    if "**" in spot.keywords:
        return None
    return Fix("Compile in place", (Edit(place, f"{first.text}.compile({options})"),))
