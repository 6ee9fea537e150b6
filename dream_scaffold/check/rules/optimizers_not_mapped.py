"""`configure_optimizers` does not return a mapping of models to optimizers.

The runtime has to know which optimizer trains which model: to clip and step it, to check its
parameters, to save its state under their names. An optimizer alone, a list, or the pair of
lists that other frameworks take is refused at start-up.

Bad:

    def configure_optimizers(self):
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        return self.optimizer

Good:

    def configure_optimizers(self):
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        return {self.model: self.optimizer}

How to fix: return `{model: optimizer}`; schedulers come from `configure_schedulers`. `--fix` does
it where one optimizer and one model are returned.
"""

from collections.abc import Iterator

from ..facts import (
    Act,
    Call,
    Constant,
    Display,
    Edit,
    Fix,
    Match,
    Path,
    Project,
    Severity,
    Term,
    Trace,
    Trainer,
)

CODE = "DT603"
NAME = "optimizers-not-mapped"
SEVERITY: Severity = "error"

_MODEL = """
    import torch
    from torch import nn

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = nn.Linear(2, 2)
"""

PASSES = (
    _MODEL
    + """
        def configure_optimizers(self):
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            return {self.model: self.optimizer}
    """,
    _MODEL
    + """
        def configure_optimizers(self):
            return dict(zip(self.models, self.optimizers))
    """,
    _MODEL
    + """
        def configure_optimizers(self):
            return make_optimizers(self.model)
    """,
    _MODEL
    + """
        def configure_optimizers(self):
            found = {}
            for name, model in self.named_models().items():
                found[model] = torch.optim.SGD(model.parameters(), lr=0.1)
            return found
    """,
    _MODEL
    + """
        def configure_optimizers(self):
            raise NotImplementedError
    """,
)

MATCHES = (
    _MODEL
    + """
        def configure_optimizers(self):
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            return self.optimizer
    """,
    _MODEL
    + """
        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
            return [optimizer], [scheduler]
    """,
    _MODEL
    + """
        def configure_optimizers(self):
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
    """,
    _MODEL
    + """
        def configure_optimizers(self):
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            return {"model": self.optimizer}
    """,
    _MODEL
    + """
        def configure_optimizers(self):
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            return {self.optimizer: self.model}
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        for trace in trainer.behaviour.named("configure_optimizers"):
            returned = list(trace.returns)
            ended = [act for act in trace.acts if act.kind in ("raise", "yield")]
            if not returned and not ended and trace.acts and not trace.is_cut:
                yield _match(trainer, trace, None, "nothing")
            found = [(act, _first_wrong(trainer, act)) for act in returned]
            everywhere = all(wrong is not None for _, wrong in found)
            for act, wrong in found:
                if wrong is not None:
                    match = _match(trainer, trace, act, wrong)
                    yield match._replace(certain=everywhere or act.is_certain)


def _first_wrong(trainer: Trainer, act: Act) -> str | None:
    wrong = [_wrong(trainer, option) for option in act.term.options()]
    return next((reason for reason in wrong if reason is not None), None)


def _wrong(trainer: Trainer, term: Term) -> str | None:
    """What is returned instead of a mapping; None where that is one, or unknown."""
    if isinstance(term, Constant):
        return repr(term.value) if term.value is not None else "None"
    if isinstance(term, Display):
        if term.kind != "dict":
            return f"a {term.kind}"
        for key in term.keys:
            if isinstance(key, Constant):
                return f"a mapping with the key {key.value!r}"
            if _is_optimizer(trainer, key):
                return "a mapping whose keys are optimizers"
        return None
    return "an optimizer" if _is_optimizer(trainer, term) else None


def _is_optimizer(trainer: Trainer, term: Term) -> bool:
    made = trainer.behaviour.made_by(term)
    if made is None or not made.name.startswith("torch.optim.") or made.name.count(".") != 2:
        return False
    return made.last[:1].isupper()


def _match(trainer: Trainer, trace: Trace, act: Act | None, wrong: str) -> Match:
    models = [model.path for model in trainer.behaviour.models.values() if model.trained]
    example = models[0] if models else "self.model"
    remedy = f"Return {{{example}: optimizer}}."
    if wrong in ("a list", "a tuple"):
        remedy += " Schedulers come from configure_schedulers."
    fix = _fix(act, models) if act is not None and wrong == "an optimizer" else None
    place = trace.place if act is None else act.place
    return Match(
        place,
        f"configure_optimizers returns {wrong}, not a mapping of models to optimizers.",
        remedy,
        fix=fix,
    )


def _fix(act: Act, models: list[str]) -> Fix | None:
    """The optimizer in a mapping, where there is no doubt what it trains."""
    head, _, value = act.spot.text.partition(" ")
    if len(models) != 1 or head != "return" or not isinstance(act.term, (Path, Call)):
        return None
    if "\n" in value or not value.strip():
        return None
    edit = Edit(act.place, f"return {{{models[0]}: {value.strip()}}}")
    return Fix(f"Return {{{models[0]}: ...}}", (edit,))
