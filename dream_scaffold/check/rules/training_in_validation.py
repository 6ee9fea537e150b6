"""`validation_step` trains.

A validation runs without gradients, on data that is held out: `backward` fails there, or,
where gradients were switched on by hand, the model learns what it is measured on.

Bad:

    def validation_step(self, batch, batch_idx):
        loss = self.model(batch)
        self.backward(loss)
        self.step(self.optimizer)

Good:

    def validation_step(self, batch, batch_idx):
        return {"val/loss": self.model(batch)}

How to fix: leave `backward` and `step` to `training_step`.
"""

from collections.abc import Iterator

from ..facts import Match, Project, Severity, is_learnt, optimizer_of

CODE = "DT507"
NAME = "training-in-validation"
SEVERITY: Severity = "error"

PASSES = (
    """
    class MyTrainer(Complete):
        def validation_step(self, batch, batch_idx):
            return {"val/loss": self.model(batch)}
    """,
    """
    class MyTrainer(Complete):
        def validation_step(self, batch, batch_idx):
            self.game.step()
            return {"val/loss": self.model(batch)}
    """,
    """
    class MyTrainer(Complete):
        def validation_step(self, batch, batch_idx):
            return self.losses(batch)

        def training_step(self, batch, batch_idx):
            result = self.losses(batch)
            self.backward(result["loss"])
            return result

        def losses(self, batch):
            return {"loss": self.model(batch)}
    """,
)

MATCHES = (
    """
    class MyTrainer(Complete):
        def validation_step(self, batch, batch_idx):
            loss = self.model(batch)
            self.backward(loss)
            return {"val/loss": loss}
    """,
    """
    class MyTrainer(Complete):
        def validation_step(self, batch, batch_idx):
            return self.learn(batch)

        def learn(self, batch):
            loss = self.model(batch)
            loss.backward()
            self.step(self.optimizer)
            return {"val/loss": loss}
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        behaviour = trainer.behaviour
        for trace in behaviour.named("validation_step"):
            for act, call in trace.calls("backward", "step"):
                by_hand = call.last == "backward" and is_learnt(
                    call.receiver or call.function, behaviour
                )
                own = call.name in ("self.backward", "self.step")
                if own or by_hand or optimizer_of(call, behaviour) is not None:
                    yield Match(
                        act.place,
                        f"validation_step calls `{call.spot.callee.text}`: it trains.",
                        "Leave that to training_step.",
                        notes=act.notes,
                    )
