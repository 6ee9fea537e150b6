"""An optimizer is built, and `training_step` never steps it.

Its model stays as it was drawn, and nothing says so: the loss of the others falls.

Bad:

    def configure_optimizers(self):
        self.slow, self.fast = SGD(...), SGD(...)
        ...
    def training_step(self, batch, batch_idx):
        ...
        self.step(self.fast)

Good:

        self.step(self.fast)
        self.step(self.slow)

How to fix: step every optimizer, or do not build it.
"""

from collections.abc import Iterator

from ..facts import Act, Behaviour, Match, Path, Project, Severity, Term, Trace, Trainer

CODE = "DT506"
NAME = "idle-optimizer"
SEVERITY: Severity = "warning"

_HEAD = """
    import torch

    class MyTrainer(Complete):
        def configure_optimizers(self):
            self.slow = torch.optim.SGD(self.model.parameters(), lr=0.1)
            self.fast = torch.optim.SGD(self.model.parameters(), lr=0.1)
            return {self.model: self.slow, self.model: self.fast}

        def training_step(self, batch, batch_idx):
            loss = self.model(batch)
            self.backward(loss)
"""

PASSES = (
    _HEAD
    + """
            for optimizer in (self.slow, self.fast):
                self.step(optimizer)
            return {"loss": loss}
    """,
    _HEAD
    + """
            for optimizer in self.optimizers.values():
                self.step(optimizer)
            return {"loss": loss}
    """,
    _HEAD
    + """
            self.step(self.slow if batch_idx % 2 else self.fast)
            return {"loss": loss}
    """,
    _HEAD
    + """
            return {"loss": loss, "norm": self.finish()}

        def finish(self):
            self.step(self.fast)
            return self.step(self.slow)
    """,
)

MATCHES = (
    _HEAD
    + """
            self.step(self.fast)
            return {"loss": loss}
    """,
    _HEAD
    + """
            return {"loss": loss}
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        built = list(_built(trainer))
        for trace in trainer.behaviour.named("training_step") if built else ():
            if trainer.open or trace.is_open or "fit" in trainer.methods:
                continue
            stepped = _stepped(trace, trainer.behaviour)
            for act, path in built if stepped is not None else ():
                if path not in (stepped or set()):
                    yield Match(
                        act.place,
                        f"training_step never steps {path}: what it trains stays as it is.",
                        f"Call self.step({path}) in training_step.",
                    )


def _built(trainer: Trainer) -> Iterator[tuple[Act, str]]:
    for trace in trainer.behaviour.named("configure_optimizers"):
        for act in trace.of_kind("set"):
            made = trainer.behaviour.made_by(act.term)
            name = "" if made is None or act.constructing else made.name
            is_optimizer = name.startswith("torch.optim.") and ".lr_scheduler." not in name
            if is_optimizer and isinstance(act.target, Path):
                yield act, act.target.dotted


def _stepped(trace: Trace, behaviour: Behaviour) -> set[str] | None:
    """The optimizers that are stepped; None where that is not known."""
    stepped: set[str] = set()
    for _, call in trace.calls("step"):
        if call.name == "self.step":
            given = call.argument(0, "optimizer")
            if given is None or not _known(given):
                return None
            stepped |= {path.dotted for path in given.options() if isinstance(path, Path)}
        elif isinstance(call.receiver, Path):
            stepped.add(call.receiver.dotted)  # By hand: another rule's.
    handed = {
        part.dotted
        for _, call in trace.calls()
        for given in (*call.arguments, *call.keywords.values())
        for part in given.walk()
        if isinstance(part, Path)
    }
    return stepped | handed


def _known(term: Term) -> bool:
    """Whether it is one optimizer, or one of several, by name."""
    return all(
        isinstance(option, Path) and option.dotted.count(".") == 1 and "*" not in option.dotted
        for option in term.options()
    )
