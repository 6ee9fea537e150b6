"""A `DataLoader` is told to shuffle, and has a sampler.

The sampler decides the order, so the loader refuses both with a ValueError, when it is
built: after the models, on every rank of the job.

Bad:

    DataLoader(data, sampler=sampler, shuffle=True)

Good:

    sampler = DistributedSampler(data, num_replicas=n, rank=r, shuffle=True)
    DataLoader(data, sampler=sampler)

How to fix: leave `shuffle` out of the loader, and let the sampler shuffle. `--fix` does.
"""

from collections.abc import Iterator

from ..facts import Constant, Edit, Fix, Match, Project, Severity, constant

CODE = "DT403"
NAME = "shuffle-beside-sampler"
SEVERITY: Severity = "error"

_HEAD = """
    from torch.utils.data import DataLoader, DistributedSampler

    DATA = [1, 2, 3]

    class MyTrainer(Complete):
        def configure_dataloaders(self):
            ranks = {"num_replicas": self.world.dp_size, "rank": self.world.dp_rank}
"""

PASSES = (
    _HEAD
    + """
            sampler = DistributedSampler(DATA, shuffle=True, **ranks)
            return DataLoader(DATA, sampler=sampler), None
    """,
    _HEAD
    + """
            return DataLoader(DATA, shuffle=True, sampler=None), None
    """,
    _HEAD
    + """
            sampler = DistributedSampler(DATA, **ranks)
            return DataLoader(DATA, sampler=sampler, shuffle=self.config.shuffle), None
    """,
)

MATCHES = (
    _HEAD
    + """
            sampler = DistributedSampler(DATA, **ranks)
            return DataLoader(DATA, sampler=sampler, shuffle=True), None
    """,
    _HEAD
    + """
            return self.loader(DistributedSampler(DATA, **ranks)), None

        def loader(self, sampler):
            options = dict(batch_sampler=sampler)
            return DataLoader(DATA, shuffle=True, batch_sampler=sampler)
    """,
)

CHOOSERS = ("sampler", "batch_sampler")


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        for trace in trainer.behaviour.named("configure_dataloaders"):
            for act, call in trace.calls("DataLoader", "StatefulDataLoader"):
                given = [call.keywords[name] for name in CHOOSERS if name in call.keywords]
                chosen = [term for term in given if not _may_be_none(term)]
                spot = call.spot.keywords.get("shuffle")
                if chosen and spot is not None and constant(call.keywords["shuffle"]) is True:
                    yield Match(
                        spot.place,
                        "The loader has a sampler, and refuses to shuffle beside it.",
                        "Leave shuffle out; the sampler decides the order.",
                        notes=act.notes,
                        fix=Fix("Let the sampler decide", (Edit(spot.place, "False"),)),
                    )


def _may_be_none(term: object) -> bool:
    options = getattr(term, "options", lambda: ())
    return any(isinstance(option, Constant) and option.value is None for option in options())
