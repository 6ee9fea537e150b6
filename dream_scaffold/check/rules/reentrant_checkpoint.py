"""Activation checkpointing with `use_reentrant=True`.

The re-entrant variant runs a backward of its own inside the backward. It does not go with
`torch.compile`, under `fully_shard` its hooks run twice, DDP counts a parameter as ready
twice ("marked as ready twice"), and parameters that need no input with a gradient get none.

Bad:

    torch.utils.checkpoint.checkpoint(block, x, use_reentrant=True)

Good:

    torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)

    # or, for whole blocks, in the hook:
    def apply_activation_checkpointing(self):
        for layer in self.model.layers:
            checkpoint_forward(layer)

How to fix: write `use_reentrant=False`; `--fix` does it. See docs/parallelism.md for the hook.
"""

from collections.abc import Iterator

from ..facts import Call, Constant, Edit, Fix, Foreign, Match, Place, Project, Severity, Trace

CODE = "DT218"
NAME = "reentrant-checkpoint"
SEVERITY: Severity = "warning"

PASSES = (
    """
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    class Net(nn.Module):
        def forward(self, x):
            return checkpoint(self.inner, x, use_reentrant=False)

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = Net()
    """,
    """
    from dream_trainer.parallel.checkpointing import checkpoint_forward

    class MyTrainer(Complete):
        def apply_activation_checkpointing(self):
            for layer in self.model.layers:
                checkpoint_forward(layer)
    """,
    """
    class MyTrainer(Complete):
        def apply_activation_checkpointing(self):
            self.options = {"use_reentrant": True}
            make_game(use_reentrant=None)
    """,
)

MATCHES = (
    """
    from torch import nn
    from torch.utils import checkpoint

    class Net(nn.Module):
        def forward(self, x):
            return checkpoint.checkpoint(self.inner, x, use_reentrant=True)

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = Net()
    """,
    """
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
        CheckpointImpl, checkpoint_wrapper as wrap,
    )

    class MyTrainer(Complete):
        def apply_activation_checkpointing(self):
            for index, layer in enumerate(self.model.layers):
                self.model.layers[index] = wrap(
                    layer, checkpoint_impl=CheckpointImpl.REENTRANT
                )
    """,
    """
    from functools import partial
    from torch.utils.checkpoint import checkpoint

    class MyTrainer(Complete):
        def apply_activation_checkpointing(self):
            for layer in self.model.layers:
                layer.forward = partial(checkpoint, layer.forward, use_reentrant=True)
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trace in _traces(project):
        for act, call in trace.calls():
            if call.keywords and (fault := _fault(call)) is not None:
                keyword, remedy = fault
                yield Match(
                    _place(call, keyword),
                    "Re-entrant checkpointing does not go with compilation, sharding or "
                    "replication.",
                    f"Write {keyword}={remedy}.",
                    notes=act.notes,
                    fix=_fix(call, keyword, remedy),
                )


def _place(call: Call, keyword: str) -> Place:
    spot = call.spot.keywords.get(keyword)
    return call.place if spot is None else spot.place


def _traces(project: Project) -> Iterator[Trace]:
    yield from project.traces
    for trainer in project.trainers:
        yield from trainer.behaviour.forwards.values()


def _fault(call: Call) -> tuple[str, str] | None:
    """The keyword that asks for it, and what to write instead."""
    given = call.keywords.get("use_reentrant")
    if isinstance(given, Constant) and given.value is True:
        return "use_reentrant", "False"
    given = call.keywords.get("checkpoint_impl")
    if isinstance(given, Foreign) and given.last == "REENTRANT":
        return "checkpoint_impl", "CheckpointImpl.NO_REENTRANT"
    return None


def _fix(call: Call, keyword: str, remedy: str) -> Fix | None:
    spot = call.spot.keywords.get(keyword)
    if spot is None or keyword != "use_reentrant" or spot.text != "True":
        return None
    return Fix(f"Write {keyword}={remedy}", (Edit(spot.place, remedy),))
