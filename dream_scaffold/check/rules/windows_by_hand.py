"""A step counts micro-batches by hand.

The runtime has counted them: `self.step` does nothing until the last batch of a window.
A second counter steps on other batches than the runtime synchronizes gradients on, and
most updates are lost.

Bad:

    if (batch_idx + 1) % 4 == 0:
        self.step(self.optimizer)

Good:

    self.step(self.optimizer)       # gradient_accumulation_steps=4 in the configuration

How to fix: call `self.step` for every batch, and set
`training_parameters.gradient_accumulation_steps`.
"""

from collections.abc import Iterator

from ..facts import Derived, Guard, Match, Project, Severity

CODE = "DT503"
NAME = "windows-by-hand"
SEVERITY: Severity = "warning"

PASSES = (
    """
    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            loss = self.model(batch)
            self.backward(loss)
            return {"loss": loss, "norm": self.step(self.optimizer)}
    """,
    """
    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            loss = self.model(batch)
            self.backward(loss)
            self.step(self.optimizer)
            if batch_idx % 100 == 0:
                self.look(loss)
            return {"loss": loss}
    """,
    """
    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            loss = self.model(batch)
            self.backward(loss)
            if self.global_step % 2:
                self.step(self.critic)
            return {"loss": loss}
    """,
)

MATCHES = (
    """
    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            loss = self.model(batch) / 4
            self.backward(loss)
            if (batch_idx + 1) % self.config.windows == 0:
                self.step(self.optimizer)
            return {"loss": loss}
    """,
    """
    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            loss = self.model(batch)
            self.backward(loss)
            last = batch_idx % 4 == 3
            return {"loss": loss, "norm": self.step(self.optimizer) if last else None}
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        for trace in trainer.behaviour.named("training_step"):
            for act, call in trace.calls("step"):
                for guard in act.guards if call.name == "self.step" else ():
                    if _counts(guard):
                        yield Match(
                            guard.spot.place,
                            f"`{guard.spot.text}` counts batches, as the runtime does: they step "
                            "on different ones.",
                            "Call self.step for every batch; set gradient_accumulation_steps.",
                            notes=act.notes,
                        )


def _counts(guard: Guard) -> bool:
    """Whether a condition is about the batch's number, modulo another."""
    if guard.kind not in ("if", "else", "after"):
        return False
    return any(
        isinstance(part, Derived) and part.operator == "Mod" and part.reads("batch_idx")
        for part in guard.test.walk()
    )
