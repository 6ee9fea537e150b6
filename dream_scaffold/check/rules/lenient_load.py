"""Weights are loaded with `strict=False`, and nobody looks at what did not fit.

A wrapper's prefix in the names (`_orig_mod.`, `module.`) or a renamed layer is enough for not one
tensor to be loaded: `strict=False` says nothing, and training begins from random weights, with a
plausible loss.

Bad:

    self.model.load_state_dict(torch.load(path), strict=False)

Good:

    CheckpointParameters(init_from=path, allow_missing=("head.*",))

How to fix: name what may be missing in `allow_missing`, or look at what `load_state_dict` returns:
`missing, unexpected = ...`. See docs/checkpointing.md.
"""

from collections.abc import Iterator

from ..facts import Call, Constant, Match, Project, Severity, Trace, hooks_of, is_within

CODE = "DT611"
NAME = "lenient-load"
SEVERITY: Severity = "warning"

_MODEL = """
    import torch
    from torch import nn

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = nn.Linear(2, 2)
"""

PASSES = (
    _MODEL
    + """
        def init_weights(self):
            self.model.load_state_dict(torch.load("x.pt"))
    """,
    _MODEL
    + """
        def init_weights(self):
            missing, unexpected = self.model.load_state_dict(torch.load("x.pt"), strict=False)
            if missing or unexpected:
                raise ValueError
    """,
    _MODEL
    + """
        def init_weights(self):
            found = self.model.load_state_dict(torch.load("x.pt"), strict=False)
            print(f"left out: {found.missing_keys}")
    """,
    _MODEL
    + """
        def init_weights(self):
            self.tokenizer.load_state_dict({}, strict=False)
    """,
)

MATCHES = (
    _MODEL
    + """
        def init_weights(self):
            self.model.load_state_dict(torch.load("x.pt"), strict=False)
    """,
    _MODEL
    + """
        def init_weights(self):
            load(self.model, "x.pt")

    def load(module, path):
        _ = module.load_state_dict(torch.load(path), False)
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trace, models in hooks_of(project):
        for act, call in trace.calls("load_state_dict"):
            strict, receiver = call.argument(1, "strict"), call.receiver
            if not isinstance(strict, Constant) or strict.value is not False or receiver is None:
                continue
            if any(is_within(receiver, model) for model in models) and not _is_used(call, trace):
                yield Match(
                    act.place,
                    "strict=False leaves out what does not fit, and nobody looks at what that is.",
                    "Use init_from with allow_missing, or look at what load_state_dict returns.",
                    notes=act.notes,
                )


def _is_used(call: Call, trace: Trace) -> bool:
    """Whether something is done with what the call returns."""
    name = f"{call.name}()"
    for act in trace.acts:
        if act.term is call and act.kind == "call":
            continue
        if name in act.term.origins and any(part is call for part in act.term.walk()):
            return True
    return False
