"""A step calls `loss.backward()` instead of `self.backward(loss)`.

The runtime scales the loss for accumulated batches, switches gradient synchronization
off until the last of them, and looks once whether the gradients of all ranks agree.
`loss.backward()` goes round all of that: with accumulation, gradients come out too
large by the number of batches.

Bad:

    loss = F.cross_entropy(self.model(batch["input"]), batch["target"])
    loss.backward()

Good:

    loss = F.cross_entropy(self.model(batch["input"]), batch["target"])
    self.backward(loss)

How to fix: call `self.backward(loss)`. `--fix` does it.
"""

from collections.abc import Iterator

from ..facts import Act, Call, Edit, Fix, Match, Project, Severity

CODE = "DT501"
NAME = "backward-by-hand"
SEVERITY: Severity = "error"

PASSES = (
    """
    import torch

    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            gradient, = torch.autograd.grad(self.model(batch).sum(), batch["x"])
            return {"size": gradient.norm()}
    """,
    """
    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            loss = self.model(batch)
            self.backward(loss)
            return {"loss": loss}
    """,
    """
    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            self.game.backward()
            return {"loss": self.model(batch)}
    """,
)

MATCHES = (
    """
    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            loss = self.model(batch)
            loss.backward()
            return {"loss": loss}
    """,
    """
    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            return self.learn(self.model(batch).mean())

        def learn(self, error):
            (error / 2).backward(retain_graph=True)
            return {"loss": error}
    """,
    """
    import torch

    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            loss = self.model(batch)
            torch.autograd.backward(loss)
            return {"loss": loss}
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        models = [model.path for model in trainer.behaviour.models.values()]
        for trace in trainer.behaviour.named("training_step"):
            for act, call in trace.calls("backward"):
                loss = call.arguments[0] if call.is_foreign("torch") else call.receiver
                if loss is not None and (call.is_foreign() or loss.reads(*models)):
                    yield Match(
                        act.place,
                        f"`{call.spot.callee.text}()` goes round the runtime: accumulation "
                        "and gradient synchronization do not know of it.",
                        "Call self.backward(loss).",
                        notes=act.notes,
                        fix=_fix(act, call),
                    )


def _fix(act: Act, call: Call) -> Fix | None:
    """`self.backward(loss)` in its place, where it has no further arguments."""
    receiver = call.spot.receiver
    if call.is_foreign() or call.arguments or call.keywords or receiver is None:
        return None
    edit = Edit(act.place, f"self.backward({receiver.text})")
    return Fix("Use self.backward(loss)", (edit,))
