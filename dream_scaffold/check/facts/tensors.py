"""Which terms are tensors that a model made, and which calls are an optimizer's."""

from .behaviour import Behaviour
from .terms import Attribute, Call, Derived, Either, Foreign, Item, Path, Term

ABOUT = frozenset(
    {"shape", "ndim", "dtype", "device", "requires_grad", "is_cuda", "layout", "names", "nbytes"}
)
"""Attributes of a tensor that are no tensors."""

COUNTS = frozenset({"size", "numel", "dim", "len", "item", "tolist", "isinstance", "type", "id"})
APART = frozenset({"detach", "detach_", "no_grad"})
"""Calls that give no tensor, or one without a graph."""


def is_learnt(term: Term, behaviour: Behaviour, depth: int = 0) -> bool:
    """Whether a term is surely a tensor that depends on what a model made."""
    if depth > 40:
        return False
    if isinstance(term, Call):
        if is_of_model(term, behaviour):
            return True
        if term.last in COUNTS or term.last in APART or term.name.startswith("builtins."):
            return False
        if term.receiver is not None and is_learnt(term.receiver, behaviour, depth + 1):
            return True
        given = (*term.arguments, *term.keywords.values())
        torch = isinstance(term.function, Foreign) and term.function.name.startswith("torch.")
        return torch and any(is_learnt(inner, behaviour, depth + 1) for inner in given)
    if isinstance(term, Attribute):
        return term.name not in ABOUT and is_learnt(term.of, behaviour, depth + 1)
    if isinstance(term, Item):
        return is_learnt(term.of, behaviour, depth + 1)
    if isinstance(term, Derived) and term.operator not in ("Is", "IsNot", "format", "In", "NotIn"):
        return any(is_learnt(inner, behaviour, depth + 1) for inner in term.of)
    if isinstance(term, Either):
        return all(is_learnt(inner, behaviour, depth + 1) for inner in term.choices)
    return False


def is_of_model(call: Call, behaviour: Behaviour) -> bool:
    """Whether a call is a forward of a model or of a part of one, or a pipeline's."""
    if call.name == "self.pipeline":
        return True
    function = call.function
    if not isinstance(function, Path):
        return False
    return any(
        function.dotted in (model.path, f"{model.path}.forward")
        for model in behaviour.models.values()
    )


def optimizer_of(call: Call, behaviour: Behaviour) -> str | None:
    """How the optimizer or scheduler that a method is called on is written; None: it is none."""
    receiver = call.receiver
    if not isinstance(receiver, Path) or not receiver.dotted.startswith("self."):
        return None
    made = behaviour.made_by(receiver)
    if made is not None:
        known = made.name.startswith("torch.optim.") or made.last.endswith(("Optimizer", "LR"))
        return receiver.dotted if known else None
    name = receiver.last.lower()
    named = any(part in name for part in ("optimizer", "scheduler"))
    return receiver.dotted if named and receiver.dotted.count(".") == 1 else None
