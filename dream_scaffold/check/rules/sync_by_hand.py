"""Gradient synchronization is switched by hand.

The runtime switches it on for the last batch of a window and off for the others. FSDP2
and `replicate` have no `no_sync`, so what looks for it finds nothing to do; and where it
is left off, no gradient is averaged: each rank trains a model of its own.

Bad:

    self.model.set_requires_gradient_sync(False)
    with self.model.no_sync(): ...

Good:

    self.backward(loss)             # gradient_accumulation_steps in the configuration

How to fix: set `training_parameters.gradient_accumulation_steps`, and leave switching to
the runtime. To pass gradients through a model without training it, use `self.frozen`.
"""

from collections.abc import Iterator

from ..facts import Act, Call, Match, Path, Project, Severity, constant

CODE = "DT510"
NAME = "sync-by-hand"
SEVERITY: Severity = "error"

PASSES = (
    """
    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            with self.frozen(self.critic):
                self.backward(self.critic(self.model(batch)))
            return {}
    """,
    """
    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            self.model.set_requires_gradient_sync(not self.is_accumulating_gradients)
            return {"loss": self.model(batch)}
    """,
    """
    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            with self.wandb.no_sync_to_cloud():
                return {"loss": self.model(batch)}
    """,
)

MATCHES = (
    """
    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            with self.model.no_sync():
                self.backward(self.model(batch))
            return {}
    """,
    """
    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            self.model.set_requires_gradient_sync(False)
            return {"loss": self.model(batch)}
    """,
    """
    class MyTrainer(Complete):
        def init_weights(self):
            self.model.require_backward_grad_sync = False
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        for trace in trainer.behaviour.traces.values():
            for act in trace.acts:
                what = _switches(act)
                if what is not None:
                    yield Match(
                        act.place,
                        f"{what} switches gradient synchronization, which is the runtime's.",
                        "Set training_parameters.gradient_accumulation_steps instead.",
                        notes=act.notes,
                    )


def _switches(act: Act) -> str | None:
    call = act.term
    if act.kind == "call" and isinstance(call, Call) and call.receiver is not None:
        if call.last == "no_sync" and not call.arguments:
            return f"`{call.spot.callee.text}()`"
        off = call.argument(0, "requires_gradient_sync")
        if call.last == "set_requires_gradient_sync" and constant(off) is False:
            return f"`{call.spot.text}`"
    target = act.target if act.kind == "set" else None
    if isinstance(target, Path) and target.last == "require_backward_grad_sync":
        return f"`{target.dotted} = False`" if constant(act.term) is False else None
    return None
