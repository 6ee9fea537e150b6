"""Attention with a mask, or by a kernel of its own, while the sequence is split over ranks.

Under context parallelism `F.scaled_dot_product_attention` works across ranks, causal or full.
A mask is for a sequence that no rank holds, so the runtime refuses one; a flash-attention or
flex-attention kernel that is called directly, or attention written out with a softmax over
the keys, does not know of the other ranks: each attends to its own part, the loss looks
plausible, and nothing is reported.

Bad:

    F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    flash_attn_func(q, k, v, causal=True, window_size=(256, 0))

Good:

    F.scaled_dot_product_attention(q, k, v, is_causal=True)

How to fix: use `F.scaled_dot_product_attention` without `attn_mask`, or set
`context_parallel=1`. See docs/parallelism.md.
"""

from collections.abc import Iterator

from ..facts import Behaviour, Call, Constant, Match, Path, Project, Severity, Term, Trace

CODE = "DT217"
NAME = "mask-under-context-parallel"
SEVERITY: Severity = "warning"

KERNELS = frozenset(
    {"flex_attention", "flash_attn_func", "flash_attn_varlen_func", "flash_attn_qkvpacked_func"}
    | {
        "flash_attn_kvpacked_func",
        "memory_efficient_attention",
    }
)

_NET = """
    import torch.nn.functional as F
    from torch import nn
    from torch.nn.attention.flex_attention import flex_attention as flex

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.query = nn.Linear(8, 8)
            self.key = nn.Linear(8, 8)

        def forward(self, x, mask=None):
            query, key = self.query(x), self.key(x)
"""

_TRAINER = """
    class MyTrainer(Complete):
        def configure_models(self):
            self.model = Net()
"""

_CP = """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(compile_model=False, context_parallel=2)
    )
"""

PASSES = (
    _NET
    + """
            return F.scaled_dot_product_attention(query, key, key, is_causal=True)
    """
    + _TRAINER
    + _CP,
    _NET
    + """
            return F.scaled_dot_product_attention(query, key, key, attn_mask=None)
    """
    + _TRAINER
    + _CP,
    _NET
    + """
            return F.scaled_dot_product_attention(query, key, key, mask)
    """
    + _TRAINER
    + """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(compile_model=False)
    )
    """,
)

MATCHES = (
    _NET
    + """
            return F.scaled_dot_product_attention(query, key, key, attn_mask=x.triu())
    """
    + _TRAINER
    + _CP,
    _NET
    + """
            return self.mix(query, key)

        def mix(self, query, key):
            return flex(query, key, key)
    """
    + _TRAINER
    + _CP,
    _NET
    + """
            return F.scaled_dot_product_attention(query, key, key, x > 0)
    """
    + _TRAINER
    + _CP,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        wide = [config for config in trainer.configs if config.is_wide("cp")]
        for trace in _forwards(trainer.behaviour) if wide else ():
            for act, call in trace.calls():
                fault = _fault(call)
                for config in wide if fault else ():
                    yield Match(
                        act.place,
                        f"Context parallelism supports attention that is causal or full, but "
                        f"{fault}.",
                        "Call F.scaled_dot_product_attention without attn_mask, or set "
                        "context_parallel=1.",
                        config=config.name,
                        notes=act.notes,
                    )


def _forwards(behaviour: Behaviour) -> Iterator[Trace]:
    yield from behaviour.forwards.values()
    yield from behaviour.named("training_step")


def _fault(call: Call) -> str:
    """What is wrong with a call under context parallelism; empty for nothing."""
    if not call.is_foreign():
        return ""
    if call.last == "scaled_dot_product_attention":
        mask = call.argument(3, "attn_mask")
        return "this one gets an attn_mask" if mask is not None and _is_mask(mask) else ""
    if call.last in KERNELS:
        return f"`{call.spot.callee.text}` attends to this rank's part of the sequence alone"
    return ""


def _is_mask(term: Term) -> bool:
    """Whether a mask is given on every call: an argument may well be None."""
    if isinstance(term, Constant):
        return term.value is not None
    if isinstance(term, Path):
        return term.root == "self"
    return isinstance(term, Call) or bool(getattr(term, "operator", ""))
