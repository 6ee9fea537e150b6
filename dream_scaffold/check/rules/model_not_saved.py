"""`model_state_dict` leaves out a model that is trained.

A checkpoint holds what `model_state_dict` returns. A model that it does not mention is trained and
never saved: after a resume it begins anew, while its optimizer and schedule go on.

Bad:

    def configure_models(self):
        self.generator, self.critic = Generator(), Critic()

    def model_state_dict(self, **_):
        return {"generator": get_model_state_dict(self.generator)}

Good:

    def model_state_dict(self, **_):
        return {
            "generator": get_model_state_dict(self.generator),
            "critic": get_model_state_dict(self.critic),
        }

How to fix: add the model under its attribute's name, or leave the hook out: by default it returns
every model. See docs/checkpointing.md.
"""

from collections.abc import Iterator

from ..facts import Constant, Display, Match, Project, Severity, Trace, Trainer, is_at

CODE = "DT602"
NAME = "model-not-saved"
SEVERITY: Severity = "error"

_TWO = """
    import torch
    from torch import nn
    from torch.distributed.checkpoint.state_dict import get_model_state_dict

    class MyTrainer(Complete):
        def configure_models(self):
            self.one, self.two = nn.Linear(2, 2), nn.Linear(2, 2)
            self.teacher = nn.Linear(2, 2)

        def configure_optimizers(self):
            self.first = torch.optim.SGD(self.one.parameters(), lr=0.1)
            self.second = torch.optim.SGD(self.two.parameters(), lr=0.1)
            return {self.one: self.first, self.two: self.second}
"""

PASSES = (
    _TWO
    + """
        def model_state_dict(self, **_):
            state = {"one": get_model_state_dict(self.one)}
            state["two"] = get_model_state_dict(self.two)
            return state
    """,
    _TWO
    + """
        def model_state_dict(self, **_):
            return {n: get_model_state_dict(m) for n, m in self.named_models().items()}
    """,
    _TWO
    + """
        def model_state_dict(self, **_):
            state = {}
            for name in ("one", "two"):
                state[name] = get_model_state_dict(getattr(self, name))
            return state
    """,
    _TWO
    + """
        def model_state_dict(self, **options):
            return {**super().model_state_dict(**options)}
    """,
    _TWO,
)

MATCHES = (
    _TWO
    + """
        def model_state_dict(self, **_):
            return {"one": get_model_state_dict(self.one)}
    """,
    _TWO
    + """
        def model_state_dict(self, **_):
            return self.states(self.two)

        def states(self, model):
            state = get_model_state_dict(model)
            return {"two": state}
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        for trace in trainer.behaviour.named("model_state_dict"):
            if trainer.open is None and not trace.is_open and _is_known(trace):
                yield from _left_out(trainer, trace)


def _is_known(trace: Trace) -> bool:
    """Whether all that it returns is written out."""
    if any(trace.calls("getattr", "vars", "attrgetter", "named_models")):
        return False
    returned = [option for act in trace.returns for option in act.term.options()]
    return bool(returned) and all(
        isinstance(option, Display)
        and option.kind == "dict"
        and not option.is_open
        and not option.is_hidden
        and all(isinstance(key, Constant) for key in option.keys)
        for option in returned
    )


def _left_out(trainer: Trainer, trace: Trace) -> Iterator[Match]:
    returns = list(trace.returns)
    place = returns[0].place if len(returns) == 1 else trace.place
    for model in trainer.behaviour.models.values():
        if not model.trained or not (model.certain or _has_optimizer(trainer, model.path)):
            continue
        if any(act.term.reads(model.path, "self.named_models") for act in trace.acts):
            continue
        yield Match(
            place,
            f"model_state_dict leaves out {model.path}, which is trained.",
            f'Add "{model.name}": get_model_state_dict({model.path}).',
        )


def _has_optimizer(trainer: Trainer, path: str) -> bool:
    """Whether `configure_optimizers` returns it as a model: then it is one, whoever made it."""
    return any(
        isinstance(option, Display) and any(is_at(key, (path,)) for key in option.keys)
        for trace in trainer.behaviour.named("configure_optimizers")
        for act in trace.returns
        for option in act.term.options()
    )
