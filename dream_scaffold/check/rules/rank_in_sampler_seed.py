"""A sampler's seed contains a rank.

Every rank then shuffles the data in an order of its own and takes its share of that: some
samples are read by several ranks in an epoch, others by none. Nothing fails.

Bad:

    DistributedSampler(data, num_replicas=n, rank=r, seed=self.config.seed + self.world.rank)

Good:

    DistributedSampler(data, num_replicas=n, rank=r, seed=self.config.seed)

How to fix: one seed for all ranks; the sampler takes the rank apart from it.
"""

from collections.abc import Iterator

from ..facts import Match, Project, Severity, is_of_rank

CODE = "DT409"
NAME = "rank-in-sampler-seed"
SEVERITY: Severity = "error"

_HEAD = """
    from torch.utils.data import DataLoader, DistributedSampler

    class MyTrainer(Complete):
        def configure_dataloaders(self):
            ranks = {"num_replicas": self.world.dp_size, "rank": self.world.dp_rank}
"""

PASSES = (
    _HEAD
    + """
            return DataLoader([1], sampler=DistributedSampler([1], seed=3, **ranks)), None
    """,
    _HEAD
    + """
            seed = self.config.seed + 1
            return DataLoader([1], sampler=DistributedSampler([1], seed=seed, **ranks)), None
    """,
    _HEAD
    + """
            noise = make_noise(seed=self.world.rank)
            return DataLoader([1], sampler=DistributedSampler([1], **ranks)), noise
    """,
)

MATCHES = (
    _HEAD
    + """
            seed = self.config.seed + self.world.rank
            return DataLoader([1], sampler=DistributedSampler([1], seed=seed, **ranks)), None
    """,
    _HEAD
    + """
            sampler = DistributedSampler([1], seed=100 * self.world.dp_rank, **ranks)
            return DataLoader([1], sampler=sampler), None
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        for trace in trainer.behaviour.named("configure_dataloaders"):
            for act, call in trace.calls("DistributedSampler"):
                seed = call.argument(4, "seed")
                if seed is not None and is_of_rank(seed):
                    spot = call.spot.keywords.get("seed")
                    yield Match(
                        call.place if spot is None else spot.place,
                        "Each rank shuffles with a seed of its own: some samples are read twice "
                        "in an epoch, others never.",
                        "Give all ranks the same seed.",
                        notes=act.notes,
                    )
