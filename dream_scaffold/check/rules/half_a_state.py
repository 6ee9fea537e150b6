"""A callback has `state_dict` but no `load_state_dict`, or the reverse.

The two belong together: what `state_dict` returns is written into every checkpoint, and after a
resume it is handed to `load_state_dict`. With one of them missing the callback begins anew on
every restart, though its state lies in the checkpoint: a patience counter at 0, a best value
forgotten.

Bad:

    class StopEarly(Callback):
        def state_dict(self):
            return {"since": self.since}

Good:

    class StopEarly(Callback):
        def state_dict(self):
            return {"since": self.since}

        def load_state_dict(self, state):
            self.since = state["since"]

How to fix: define the other one, too. See docs/callbacks.md.
"""

from collections.abc import Iterator

from ..facts import Kind, Match, Project, Severity, callbacks_of

CODE = "DT606"
NAME = "half-a-state"
SEVERITY: Severity = "warning"

PASSES = (
    """
    from dream_trainer.callbacks import Callback

    class Counts(Callback):
        def state_dict(self):
            return {"seen": self.seen}

        def load_state_dict(self, state):
            self.seen = state["seen"]
    """,
    """
    from dream_trainer.callbacks import Callback

    class Kept(Callback):
        def state_dict(self):
            return vars(self)

        def load_state_dict(self, state):
            vars(self).update(state)

    class Counts(Kept):
        def state_dict(self):
            return {"seen": self.seen}
    """,
    """
    from dream_trainer.callbacks import EMACallback

    class Slow(EMACallback):
        def state_dict(self):
            return {**super().state_dict(), "slow": True}
    """,
    """
    class Words:
        def state_dict(self):
            return {"position": self.position}
    """,
)

MATCHES = (
    """
    from dream_trainer.callbacks import Callback

    class Counts(Callback):
        def state_dict(self):
            return {"seen": self.seen}
    """,
    """
    from dream_trainer import callbacks as known

    class Named(known.RankZeroCallback):
        name = "counts"

    class Counts(Named):
        def load_state_dict(self, state):
            self.seen = state["seen"]
    """,
)

PAIR = {"state_dict": "load_state_dict", "load_state_dict": "state_dict"}


def check(project: Project) -> Iterator[Match]:
    for _, kind in callbacks_of(project):
        if kind.is_open or not _derives_plainly(kind):
            continue
        for name, other in PAIR.items():
            if name in kind.methods and other not in kind.methods:
                trace = kind.traces.get(name)
                yield Match(
                    kind.place if trace is None else trace.place,
                    f"{kind.name} has {name}() but no {other}(): its state does not survive a "
                    "resume.",
                    f"Define {other}(), or leave both out.",
                )


def _derives_plainly(kind: Kind) -> bool:
    """Whether no base from outside can have the missing method."""
    foreign = [base for base in kind.bases if "." in base]
    return all(
        base.startswith("dream_trainer.")
        and base.rpartition(".")[2] in ("Callback", "RankZeroCallback")
        for base in foreign
        if not base.startswith(("builtins.", "abc.", "typing."))
    )
