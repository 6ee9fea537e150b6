"""A step returns something else than a mapping.

The runtime logs what `training_step` returns and averages what `validation_step` returns,
by name. A tensor, a tuple or nothing at all ends the run: at the first step, or after the
first epoch, when validation begins.

Bad:

    def training_step(self, batch, batch_idx):
        ...
        return loss

Good:

        return {"train/loss": loss}

How to fix: return a dict of names and values; `{}` where there is nothing to log.
"""

from collections.abc import Iterator

from ..facts import (
    Behaviour,
    Call,
    Constant,
    Display,
    Match,
    Project,
    Severity,
    Term,
    Trace,
    is_learnt,
    is_of_model,
)

CODE = "DT505"
NAME = "no-mapping-returned"
SEVERITY: Severity = "error"

PASSES = (
    """
    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            result = {}
            result["loss"] = self.model(batch)
            return result
    """,
    """
    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            return self.losses(self.model(batch))

        def losses(self, out):
            return dict(loss=out.mean())
    """,
    """
    from losses import compute

    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            return compute(self.model, batch)
    """,
    """
    class MyTrainer(Complete):
        def validation_step(self, batch, batch_idx):
            raise RuntimeError("There is nothing to validate.")
    """,
)

MATCHES = (
    """
    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            loss = self.model(batch).mean()
            self.backward(loss)
            return loss
    """,
    """
    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            self.backward(self.model(batch))
            self.step(self.optimizer)
    """,
    """
    class MyTrainer(Complete):
        def validation_step(self, batch, batch_idx):
            return self.model(batch), len(batch)
    """,
)

STEPS = ("training_step", "validation_step")


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        for trace in trainer.behaviour.named(*STEPS):
            method = trainer.methods.get(trace.name)
            if method is None or method.signature is None or trainer.is_stub(trace.name):
                continue
            returned = list(trace.returns)
            for act in returned:
                for term in act.term.options():
                    what = _other(term, trainer.behaviour)
                    if what is not None:
                        fact = f"{trace.name} returns {what}, and not a mapping."
                        yield Match(act.place, fact, 'Return a dict, as in {"train/loss": loss}.')
            if not returned and _ends(trace):
                fact = f"{trace.name} returns nothing, and not a mapping."
                yield Match(trace.place, fact, "Return a dict; {} where there is nothing to log.")


def _ends(trace: Trace) -> bool:
    """Whether a function comes to its end, as far as it was followed."""
    leaves = any(act.is_certain and not act.via for act in trace.of_kind("raise"))
    return not trace.is_cut and not leaves and not any(trace.of_kind("yield"))


def _other(term: Term, behaviour: Behaviour) -> str | None:
    """What a term surely is, where that is no mapping."""
    if isinstance(term, Display):
        return None if term.kind == "dict" else f"a {term.kind}"
    if isinstance(term, Constant):
        return "None" if term.value is None else repr(term.value)
    if isinstance(term, Call) and is_of_model(term, behaviour):
        # A model may return a mapping; a pipeline returns a loss.
        return "a tensor" if term.name == "self.pipeline" else None
    if isinstance(term, Call) and term.name in ("self.backward", "self.step"):
        return f"what {term.name} gives"
    is_tensor = isinstance(term, Call) and (term.is_foreign("torch") or _reduces(term))
    return "a tensor" if is_tensor and is_learnt(term, behaviour) else None


def _reduces(term: Call) -> bool:
    return term.last in ("mean", "sum", "square", "abs", "norm", "logsumexp", "float")
