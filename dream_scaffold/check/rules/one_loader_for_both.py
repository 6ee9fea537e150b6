"""The same loader is returned for training and for validation.

Validation then measures the data that is trained on. With `persistent_workers=True` the
two share one iterator as well: a validation in the middle of an epoch reads it to its
end, and training stops there.

Bad:

    loader = DataLoader(data)
    return loader, loader

Good:

    return self.loader(train), self.loader(held_out)

How to fix: build a second loader, over data that is held out; or return None for no
validation.
"""

from collections.abc import Iterator

from ..facts import Constant, Display, Match, Path, Project, Severity, Term

CODE = "DT406"
NAME = "one-loader-for-both"
SEVERITY: Severity = "warning"

_HEAD = """
    from torch.utils.data import DataLoader

    class MyTrainer(Complete):
        def configure_dataloaders(self):
            loader = DataLoader([1, 2, 3])
"""

PASSES = (
    _HEAD
    + """
            return loader, DataLoader([4])
    """,
    _HEAD
    + """
            return loader, None
    """,
    _HEAD
    + """
            return None, None
    """,
)

MATCHES = (
    _HEAD
    + """
            return loader, loader
    """,
    _HEAD
    + """
            self.train = loader
            held_out = self.train
            return self.train, held_out
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        for trace in trainer.behaviour.named("configure_dataloaders"):
            for act in trace.returns:
                pair = act.term
                if isinstance(pair, Display) and len(pair.items) == 2 and _same(*pair.items):
                    yield Match(
                        act.place,
                        "One loader serves training and validation: what is measured is what is "
                        "trained on.",
                        "Return a loader of data that is held out, or None.",
                    )


def _same(one: Term, other: Term) -> bool:
    if isinstance(one, Constant):
        return False
    both = isinstance(one, Path) and isinstance(other, Path) and one.dotted == other.dotted
    return one is other or both
