"""A training step makes the host wait for its device.

`.item()`, `.cpu()`, `float()`, a text or an `if` of a tensor waits until the device has
computed it; the device then waits for the host to queue more. Tens of milliseconds a
step are common, and no profile of the kernels shows them.

Bad:

    return {"train/loss": loss.item()}
    print(f"loss {loss:.3f}")
    if loss > 10: ...

Good:

    return {"train/loss": loss}             # read back only when it is logged

How to fix: return the tensor. For a condition on the device use `torch.where`; to look at
a value now and then, guard it by `self.is_logging_step`.
"""

from collections.abc import Iterator

from ..facts import Act, Behaviour, Call, Match, Path, Project, Severity, Term, is_learnt

CODE = "DT504"
NAME = "host-sync"
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
            return {"loss": loss, "size": float(len(batch)), "shape": loss.shape[0]}
    """,
    _HEAD
    + """
            print(f"batch {batch_idx}")
            return {"loss": loss.detach()}
    """,
    _HEAD
    + """
            if self.is_logging_step:
                print(f"loss {loss}")
            return {"loss": loss}
    """,
    _HEAD
    + """
            return {"loss": loss}

        def validation_step(self, batch, batch_idx):
            return {"val/loss": self.model(batch).mean().item()}
    """,
    _HEAD
    + """
            if loss is not None and loss.requires_grad:
                self.seen = True
            return {"loss": loss}
    """,
)

MATCHES = (
    _HEAD
    + """
            return {"loss": loss.item()}
    """,
    _HEAD
    + """
            print(f"loss {loss:.3f}")
            return {"loss": loss}
    """,
    _HEAD
    + """
            return {"loss": float(loss)}
    """,
    _HEAD
    + """
            if loss > 10:
                self.count = 1
            return {"loss": loss}
    """,
    _HEAD
    + """
            return self.report(loss)

        def report(self, value):
            return {"loss": value.detach().cpu().numpy()}
    """,
)

READS = ("item", "cpu", "tolist", "numpy")
CASTS = ("builtins.float", "builtins.int", "builtins.bool", "builtins.print", "builtins.str")


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        behaviour = trainer.behaviour
        for trace in behaviour.named("training_step"):
            told: set[object] = set()
            for act in trace.acts:
                what = _waits(act, behaviour) if not _is_seldom(act) else None
                if what is not None and act.place not in told:
                    told.add(act.place)
                    yield Match(
                        act.place,
                        f"{what} makes the host wait for its device in every step.",
                        "Keep it a tensor: what is returned is read back when it is logged.",
                        notes=act.notes,
                    )


def _waits(act: Act, behaviour: Behaviour) -> str | None:
    """What of an act waits for the device, as a message shows it."""
    if act.kind == "format" and is_learnt(_bare(act.term), behaviour):
        return f"Writing `{act.spot.text}` into a text"
    if act.kind == "test" and is_learnt(_bare(act.term), behaviour):
        return f"Asking whether `{act.spot.text}`"
    call = act.term
    if act.kind != "call" or not isinstance(call, Call):
        return None
    if call.last in READS and call.receiver is not None and not call.is_foreign():
        receiver = _bare(call.receiver)
        if is_learnt(receiver, behaviour) or _is_batch(receiver):
            return f"`{call.spot.text}`" if len(call.spot.text) < 60 else f"`.{call.last}()`"
    if call.name in CASTS and any(is_learnt(_bare(g), behaviour) for g in call.arguments):
        return f"`{call.spot.text}`" if len(call.spot.text) < 60 else f"`{call.last}()`"
    return None


def _bare(term: Term) -> Term:
    """A tensor below `.detach()`: reading it waits all the same."""
    while isinstance(term, Call) and term.last in ("detach", "cpu", "float", "mean", "sum"):
        if term.receiver is None:
            break
        term = term.receiver
    return term


def _is_batch(term: Term) -> bool:
    return isinstance(term, Path) and term.root == "batch" and term.dotted != "batch"


def _is_seldom(act: Act) -> bool:
    """Whether it happens on some steps only, as a condition says."""
    return any(
        guard.kind in ("if", "after")
        and guard.test.mentions("is_logging_step", "global_step", "batch_idx", "logs_step")
        for guard in act.guards
    )
