"""Checkpointed state is taken with a plain `state_dict()`.

`module.state_dict()` names things as wrappers do (`_orig_mod.`, `_checkpoint_wrapped_module.`,
`module.`), so that a checkpoint fits only the mode that it was written in. An optimizer's own
`state_dict()` numbers its parameters by position, and a new optimizer has no entries to read
into: after a resume its moments are empty, and nothing says so. With `strict=False` on loading,
or a model that was compiled by assignment, renamed weights are silently left out: an error.

Bad:

    def model_state_dict(self, **_):
        return {"model": self.model.state_dict()}

Good:

    def model_state_dict(self, **_):
        return {"model": get_model_state_dict(self.model)}

How to fix: use `get_model_state_dict` of `torch.distributed.checkpoint.state_dict`, or leave the
hook out: that is its default. The runtime keeps the state of optimizers and schedulers
itself. See docs/checkpointing.md.
"""

from collections.abc import Iterator

from ..facts import Act, Call, Constant, Match, Path, Project, Severity, Trace, Trainer, is_within

CODE = "DT601"
NAME = "plain-state-dict"
SEVERITY: Severity = "warning"

_MODEL = """
    import torch
    import torch.distributed.checkpoint as dcp
    from torch import nn
    from torch.distributed.checkpoint.state_dict import get_model_state_dict

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = nn.Linear(2, 2)

        def configure_optimizers(self):
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            return {self.model: self.optimizer}
"""

PASSES = (
    _MODEL
    + """
        def model_state_dict(self, **_):
            return {"model": get_model_state_dict(self.model)}
    """,
    _MODEL
    + """
        def init_weights(self):
            self.teacher.load_state_dict(self.model.state_dict())
    """,
    _MODEL
    + """
        def model_state_dict(self, **_):
            state = get_model_state_dict(self.model)
            return {"model": state, "loader": self.words.state_dict()}
    """,
)

MATCHES = (
    _MODEL
    + """
        def model_state_dict(self, **_):
            return {"model": self.model.state_dict()}
    """,
    _MODEL
    + """
        def model_state_dict(self, **_):
            return {name: m.state_dict() for name, m in (("model", self.model),)}
    """,
    _MODEL
    + """
        def model_state_dict(self, **_):
            state = {"model": get_model_state_dict(self.model)}
            state["optimizer"] = self.optimizer.state_dict()
            return state
    """,
    _MODEL
    + """
        def validation_step(self, batch, batch_idx):
            dcp.save({"model": self.model.state_dict()}, checkpoint_id="x")
            return {}
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        taken = list(_taken(trainer))
        why = _worse(trainer, project) if taken else None
        for act, call, what in taken:
            if what == "optimizer":
                message = (
                    f"`{call.spot.text}` numbers the state by position, and a new optimizer "
                    "reads none of it."
                )
                remedy = "Leave it out: the runtime keeps the state of optimizers."
            else:
                message = f"`{call.spot.text}` keeps the names that wrappers give."
                remedy = f"Write get_model_state_dict({_receiver(call)})."
                if why is not None:
                    message = f"{message[:-1]}, and {why}."
            severe = why is not None and what == "model"
            yield Match(
                call.place,
                message,
                remedy,
                notes=act.notes,
                severity="error" if severe else None,
            )


def _receiver(call: Call) -> str:
    receiver = call.spot.receiver
    return receiver.text if receiver is not None else "self.model"


def _taken(trainer: Trainer) -> Iterator[tuple[Act, Call, str]]:
    """The plain calls whose result is saved, and of what."""
    for trace in trainer.behaviour.traces.values():
        for act, call in _saved(trace):
            receiver = call.receiver
            if receiver is None or call.spot.receiver is None:
                continue
            if any(is_within(receiver, model) for model in _models(trainer)):
                yield act, call, "model"
            else:
                made = trainer.behaviour.made_by(receiver)
                if made is not None and made.name.startswith("torch.optim."):
                    yield act, call, "optimizer"


def _saved(trace: Trace) -> Iterator[tuple[Act, Call]]:
    if trace.name == "model_state_dict":
        yield from trace.calls("state_dict")
        return
    for act, call in trace.calls("save", "async_save"):
        if call.name.startswith("torch.distributed.checkpoint."):
            for argument in (*call.arguments, *call.keywords.values()):
                yield from ((act, inner) for inner in argument.calls("state_dict"))


def _models(trainer: Trainer) -> Iterator[str]:
    return (model.path for model in trainer.behaviour.models.values())


def _worse(trainer: Trainer, project: Project) -> str | None:
    """What makes renamed weights be lost without a word."""
    models = tuple(_models(trainer))
    compiles = any(config.hooks["apply_compile"] == "required" for config in trainer.configs)
    for trace in trainer.behaviour.named("apply_compile") if compiles else ():
        for act in trace.of_kind("set"):
            target, made = act.target, act.term
            is_compiled = isinstance(made, Call) and made.name == "torch.compile"
            if not is_compiled or not isinstance(target, Path):
                continue
            if any(is_within(target, model) for model in models):
                return f"apply_compile renames {target.dotted} by assignment"
    for trace in project.traces:
        for _, call in trace.calls("load_state_dict"):
            strict = call.argument(1, "strict")
            if isinstance(strict, Constant) and strict.value is False:
                return "load_state_dict(strict=False) leaves out what does not fit"
    return None
