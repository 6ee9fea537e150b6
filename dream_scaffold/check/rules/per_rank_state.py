"""State that differs between ranks is saved under one key.

Of each key a checkpoint keeps what one rank has: that is right for what all ranks hold alike, and
for sharded tensors, which are put together. A random state, the position in this rank's data
or a rank itself is another thing on each: after a resume every rank has that of one.

Bad:

    def state_dict(self):
        return {"random": torch.get_rng_state()}

Good:

    def state_dict(self):
        return {"seen": self.seen}  # the same on every rank

How to fix: leave it out. The runtime keeps the random streams and the position of loaders that
have `state_dict`, for each rank. See docs/checkpointing.md.
"""

from collections.abc import Iterator, Sequence

from ..facts import (
    Call,
    Constant,
    Display,
    Match,
    Path,
    Project,
    Severity,
    Term,
    Trace,
    callbacks_of,
    is_of_rank,
    on_rank_zero,
)

CODE = "DT607"
NAME = "per-rank-state"
SEVERITY: Severity = "warning"

RANDOM = (
    "torch.get_rng_state",
    "torch.random.get_rng_state",
    "torch.cuda.get_rng_state",
    "torch.cuda.get_rng_state_all",
    "random.getstate",
    "numpy.random.get_state",
)

PASSES = (
    """
    from dream_trainer.callbacks import Callback

    class Counts(Callback):
        def state_dict(self):
            return {"seen": self.seen, "name": self.loader_name}

        def load_state_dict(self, state):
            self.seen = state["seen"]
    """,
    """
    import random

    from dream_trainer.callbacks import RankZeroCallback

    class Draws(RankZeroCallback):
        def state_dict(self):
            return {"random": random.getstate()}

        def load_state_dict(self, state):
            random.setstate(state["random"])
    """,
    """
    import torch

    from dream_trainer.callbacks import Callback

    class Draws(Callback):
        def post_setup(self, trainer):
            self.rank = trainer.world.rank

        def state_dict(self):
            return {f"random/{self.rank}": torch.get_rng_state()}

        def load_state_dict(self, state):
            torch.set_rng_state(state[f"random/{self.rank}"])
    """,
)

MATCHES = (
    """
    import torch

    from dream_trainer.callbacks import Callback

    class Draws(Callback):
        def state_dict(self):
            return {"random": torch.get_rng_state()}

        def load_state_dict(self, state):
            torch.set_rng_state(state["random"])
    """,
    """
    import random as dice

    class MyTrainer(Complete):
        def model_state_dict(self, **_):
            state = super().model_state_dict()
            return {"model": state, "dice": dice.getstate()}
    """,
    """
    class MyTrainer(Complete):
        def configure_dataloaders(self):
            self.train_words = make_loader()
            return self.train_words, None

        def model_state_dict(self, **_):
            state = {}
            state["words"] = self.train_words.state_dict()
            return state
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        loaders = [
            item.dotted
            for trace in trainer.behaviour.named("configure_dataloaders")
            for act in trace.returns
            if isinstance(act.term, Display)
            for item in act.term.items
            if isinstance(item, Path)
        ]
        loaders += ["self.train_loader", "self.val_loader"]
        for trace in trainer.behaviour.named("model_state_dict"):
            yield from _in_trace(trace, loaders)
    for _, kind in callbacks_of(project):
        if not on_rank_zero(kind) and "state_dict" in kind.traces:
            yield from _in_trace(kind.traces["state_dict"], ())


def _in_trace(trace: Trace, loaders: Sequence[str]) -> Iterator[Match]:
    for act in trace.returns:
        for option in act.term.options():
            if not isinstance(option, Display) or option.kind != "dict":
                continue
            for key, item in zip(option.keys, option.items, strict=True):
                what = _differs(item, loaders) if isinstance(key, Constant) else None
                if what is not None:
                    shown = key.value if isinstance(key, Constant) else ""
                    yield Match(
                        act.place,
                        f'"{shown}" holds {what}, which differs between ranks: after a resume '
                        "all of them have that of one.",
                        "Leave it out: the runtime keeps random streams and data positions.",
                        notes=act.notes,
                    )


def _differs(item: Term, loaders: Sequence[str]) -> str | None:
    if item.reads(*RANDOM):
        return "a random state"
    if isinstance(item, Call) and item.last == "state_dict":
        receiver = item.receiver
        if isinstance(receiver, Path) and _is_loader(receiver, loaders):
            return "the position of a loader"
    return "a rank" if isinstance(item, Path) and is_of_rank(item) else None


def _is_loader(path: Path, loaders: Sequence[str]) -> bool:
    known = path.dotted in loaders
    return known or path.last in ("train_loader", "val_loader", "loader", "dataloader", "sampler")
