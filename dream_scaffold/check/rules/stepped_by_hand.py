"""A step moves the optimizer, a scheduler or the gradients by hand.

`self.step(optimizer)` does it once per window: it clips over every mesh, steps, clears,
moves the scheduler, and does nothing while gradients accumulate. By hand, accumulation
steps after every batch, a norm over a pipeline's or a tensor-parallel model's own
parameters is that of one rank, and the schedule runs ahead.

Bad:

    self.backward(loss)
    torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
    self.optimizer.step()
    self.optimizer.zero_grad()

Good:

    self.backward(loss)
    norm = self.step(self.optimizer)        # gradient_clip_val clips

How to fix: one `self.step(optimizer)` in their place; the scheduler goes with its
optimizer, and `training_parameters.gradient_clip_val` clips.
"""

from collections.abc import Iterator

from ..facts import Behaviour, Call, Match, Project, Severity, is_of_model, optimizer_of

CODE = "DT502"
NAME = "stepped-by-hand"
SEVERITY: Severity = "error"

_HEAD = """
    import torch
    from torch.nn.utils import clip_grad_norm_

    class MyTrainer(Complete):
        def configure_optimizers(self):
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            return {self.model: self.optimizer}

        def configure_schedulers(self):
            self.decay = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
            return {self.optimizer: self.decay}

        def training_step(self, batch, batch_idx):
            loss = self.model(batch)
            self.backward(loss)
"""

PASSES = (
    _HEAD
    + """
            self.step(self.optimizer)
            return {"loss": loss}
    """,
    _HEAD
    + """
            self.game.step(batch)
            self.step(self.optimizer)
            return {"loss": loss}
    """,
    _HEAD
    + """
            rate = self.decay.get_last_lr()
            self.step(self.optimizer)
            return {"loss": loss}
    """,
)

MATCHES = (
    _HEAD
    + """
            self.optimizer.step()
            return {"loss": loss}
    """,
    _HEAD
    + """
            self.finish(self.optimizer)
            return {"loss": loss}

        def finish(self, optimizer):
            optimizer.zero_grad(set_to_none=True)
    """,
    _HEAD
    + """
            self.decay.step()
            return {"loss": loss}
    """,
    _HEAD
    + """
            clip_grad_norm_(self.model.parameters(), 1.0)
            self.step(self.optimizer)
            return {"loss": loss}
    """,
)

CLIPPERS = ("clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm")
VERBS = ("step", "zero_grad", *CLIPPERS)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        for trace in trainer.behaviour.named("training_step"):
            for act, call in trace.calls(*VERBS):
                told = _told(call, trainer.behaviour)
                if told is not None:
                    yield Match(act.place, told[0], told[1], notes=act.notes)


def _told(call: Call, behaviour: Behaviour) -> tuple[str, str] | None:
    text = call.spot.callee.text
    if call.last in CLIPPERS:
        if call.is_foreign("torch"):
            fact = f"`{text}` knows of one mesh and of this rank's parameters only."
            return fact, "Set training_parameters.gradient_clip_val; self.step clips."
        return None
    if is_of_model(call, behaviour) or (owner := optimizer_of(call, behaviour)) is None:
        return None
    made = behaviour.made_by(call.receiver) if call.receiver is not None else None
    schedules = made is not None and ".lr_scheduler." in made.name
    if schedules or "sched" in owner.lower():
        fact = f"`{text}()` moves a schedule that self.step moves already."
        return fact, "Leave it out: return it from configure_schedulers."
    fact = f"`{text}()` goes round the runtime: accumulation, clipping and schedules do not know."
    return fact, f"Call self.step({owner}), which does it once per window."
