"""A step keeps a tensor with its graph from one batch to the next.

`self.total += loss` holds the loss, and with it every activation of its forward pass. Of
each step one more, until memory is full: after a thousand steps, or after a night.

Bad:

    self.total += loss
    self.losses.append(loss)

Good:

    self.total += loss.detach()

How to fix: `.detach()` what is kept. To log a value, return it.
"""

from collections.abc import Iterator

from ..facts import Act, Behaviour, Call, Edit, Fix, Match, Path, Project, Severity, is_learnt

CODE = "DT509"
NAME = "kept-graph"
SEVERITY: Severity = "warning"

_HEAD = """
    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            loss = self.model(batch).mean()
            self.backward(loss)
"""

PASSES = (
    _HEAD
    + """
            self.total += loss.detach()
            self.losses.append(loss.item())
            return {"loss": loss}
    """,
    _HEAD
    + """
            total = 0.0
            total += loss
            return {"loss": total}
    """,
    _HEAD
    + """
            self.count += len(batch)
            self.last = loss
            return {"loss": loss}
    """,
)

MATCHES = (
    _HEAD
    + """
            self.total += loss
            return {"loss": loss}
    """,
    _HEAD
    + """
            self.losses.append(loss / 2)
            return {"loss": loss}
    """,
)

KEEPERS = ("append", "add", "appendleft", "extend")


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        behaviour = trainer.behaviour
        for trace in behaviour.named("training_step"):
            for act in trace.acts:
                kept = _kept(act, behaviour)
                if kept is not None:
                    yield Match(
                        act.place,
                        f"{kept} keeps the graph of every step: memory fills up.",
                        "Keep loss.detach().",
                        notes=act.notes,
                        fix=_fix(act),
                    )


def _kept(act: Act, behaviour: Behaviour) -> str | None:
    """Where a tensor with its graph is kept."""
    if act.kind == "grow" and isinstance(act.target, Path) and act.target.root == "self":
        return act.target.dotted if is_learnt(act.term, behaviour) else None
    call = act.term
    if act.kind != "call" or not isinstance(call, Call) or call.last not in KEEPERS:
        return None
    receiver = call.receiver
    if not isinstance(receiver, Path) or receiver.root != "self":
        return None
    learnt = any(is_learnt(given, behaviour) for given in call.arguments)
    return receiver.dotted if learnt else None


def _fix(act: Act) -> Fix | None:
    if not isinstance(act.term, Call) or act.kind != "call" or len(act.term.arguments) != 1:
        return None
    spot = act.term.spot.arguments[0]
    plain = spot.text.isidentifier()
    text = f"{spot.text}.detach()" if plain else f"({spot.text}).detach()"
    return Fix("Detach it", (Edit(spot.place, text),))
