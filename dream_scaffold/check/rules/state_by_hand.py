"""Training state is saved or restored by hand.

`torch.save` on rank 0 holds one shard of a sharded model, or hangs in gathering it; a save that is
interrupted leaves half a file where the good one was; the position in the data, the random
streams and the schedule are forgotten. An optimizer's own `load_state_dict` restores nothing
into a sharded or new optimizer. The runtime's checkpoints hold all of it, for any mesh.

Bad:

    def post_epoch(self, trainer):
        torch.save(trainer.model.state_dict(), "model.pt")

Good:

    DreamTrainerConfig(checkpoint_parameters=CheckpointParameters())
    # python train.py export runs/NAME  writes the weights as safetensors

How to fix: set `checkpoint_parameters`, go on with `--resume` and begin from other weights with
`--init-from`. See docs/checkpointing.md. Data and tables may be saved as you like.
"""

from collections.abc import Iterator, Sequence

from ..facts import (
    Call,
    Derived,
    Display,
    Match,
    Project,
    Severity,
    Term,
    Trace,
    hooks_of,
    is_at,
    is_within,
)

CODE = "DT605"
NAME = "state-by-hand"
SEVERITY: Severity = "warning"

_MODEL = """
    import torch
    from torch import nn

    from dream_trainer.callbacks import Callback

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
        def validation_step(self, batch, batch_idx):
            torch.save(batch["image"], "sample.pt")
            torch.save({"output": self.model(batch), "size": self.model.in_features}, "y.pt")
            return {}
    """,
    _MODEL
    + """
        def configure_dataloaders(self):
            return make_loader(torch.load("data.pt")), None
    """,
    _MODEL
    + """
        def init_weights(self):
            self.model.load_state_dict(torch.load("base.pt"))
    """,
    _MODEL
    + """
    class Counts(Callback):
        def state_dict(self):
            return {"seen": self.seen}

        def load_state_dict(self, state):
            self.seen = state["seen"]
    """,
)

MATCHES = (
    _MODEL
    + """
        def validation_step(self, batch, batch_idx):
            torch.save({"model": self.model.state_dict(), "step": self.global_step}, "x.pt")
            return {}
    """,
    _MODEL
    + """
    class Keep(Callback):
        def post_epoch(self, trainer):
            state = trainer.model.state_dict()
            self.write(state)

        def write(self, state):
            torch.save(state, "x.pt")
    """,
    _MODEL
    + """
        def configure_schedulers(self):
            state = torch.load("x.pt")
            self.optimizer.load_state_dict(state["optimizer"])
            return {}
    """,
    _MODEL
    + """
    class Restore(Callback):
        def pre_fit(self, trainer):
            trainer.model.load_state_dict(torch.load("x.pt", map_location="cpu"))
    """,
)

STATES = ("state_dict", "get_model_state_dict", "get_optimizer_state_dict", "get_state_dict")

EARLY = ("configure_models", "init_weights", "configure_dataloaders")
"""Hooks that may load weights and data from elsewhere."""


def check(project: Project) -> Iterator[Match]:
    optimizers = {
        path
        for trainer in project.trainers
        for path, made in trainer.behaviour.attributes.items()
        if isinstance(made, Call) and made.name.startswith("torch.optim.")
        if not made.name.startswith("torch.optim.lr_scheduler.")
    }
    names = [path.partition(".")[2] for path in optimizers]
    for trace, models in hooks_of(project):
        given = trace.parameters[0] if trace.parameters else "trainer"
        own = (*optimizers, *(f"{given}.{name}" for name in names))
        yield from _saves(trace, models, own)
        if trace.name not in EARLY:
            yield from _loads(trace, models, own)


def _saves(trace: Trace, models: Sequence[str], optimizers: Sequence[str]) -> Iterator[Match]:
    for act, call in trace.calls("save"):
        saved = call.argument(0, "obj") if call.name == "torch.save" else None
        if saved is not None and _is_state(saved, (*models, *optimizers)):
            yield Match(
                act.place,
                "torch.save() keeps what this rank holds of the state, and no mesh but this one "
                "can read it.",
                "Set checkpoint_parameters; `export` writes the weights of a checkpoint.",
                notes=act.notes,
            )


def _is_state(saved: Term, paths: Sequence[str]) -> bool:
    """Whether a model, an optimizer or the state of one is in what is saved."""
    for option in saved.options():
        if is_at(option, paths):
            return True
        if isinstance(option, Call) and option.last in STATES:
            receiver = option.receiver or option.argument(0, "model")
            if receiver is not None and any(is_within(receiver, path) for path in paths):
                return True
        inside = option.parts() if isinstance(option, (Display, Derived)) else ()
        if any(_is_state(part, paths) for part in inside):
            return True
    return False


def _loads(trace: Trace, models: Sequence[str], optimizers: Sequence[str]) -> Iterator[Match]:
    for act, call in trace.calls("load_state_dict"):
        receiver = call.receiver
        if receiver is None:
            continue
        if any(is_within(receiver, path) for path in optimizers):
            message = (
                f"`{call.spot.callee.text}()` restores nothing into an optimizer whose "
                "parameters are sharded, or numbered otherwise."
            )
        elif _is_read(call) and any(is_within(receiver, path) for path in models):
            message = f"`{call.spot.callee.text}()` restores weights behind the runtime's back."
        else:
            continue
        remedy = "Go on with --resume; begin from other weights with --init-from."
        yield Match(act.place, message, remedy, notes=act.notes)


def _is_read(call: Call) -> bool:
    """Whether what is loaded comes from a file."""
    state = call.argument(0, "state_dict")
    return state is not None and state.mentions("load", "load_file", "safe_open")
