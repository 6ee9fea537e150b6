"""Data parallelism is on, and no data-parallel rank or size reaches the loader.

Every rank reads the same batches. The run is as fast as it should be and the loss falls,
but eight ranks do the work of one, and validation counts every sample eight times. A
`DistributedSampler` without arguments takes the global rank: wrong as soon as ranks share
a model, by tensor, context or pipeline parallelism.

Bad:

    DataLoader(data, sampler=DistributedSampler(data))

Good:

    sampler = DistributedSampler(
        data, num_replicas=self.world.dp_size, rank=self.world.dp_rank
    )
    DataLoader(data, sampler=sampler)

How to fix: give `self.world.dp_rank` and `self.world.dp_size` to what splits the data.
`--fix` adds them to a `DistributedSampler`.
"""

from collections.abc import Iterator

from ..facts import (
    Call,
    Code,
    Edit,
    Fix,
    Loader,
    Match,
    Project,
    Severity,
    classes,
    is_shown,
    loaders,
    reads_data_rank,
    splits,
)

CODE = "DT401"
NAME = "data-not-split"
SEVERITY: Severity = "error"

_HEAD = """
    from torch.utils.data import DataLoader, DistributedSampler

    class MyTrainer(Complete):
        def apply_replicate(self, dp_replicate_mesh):
            replicate(self.model, dp_replicate_mesh)

"""

_DDP = """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.DDP(compile_model=False)
    )
"""

PASSES = (
    _HEAD
    + """
        def configure_dataloaders(self):
            return self.loader(True), None

        def loader(self, shuffle):
            world = self.world
            sampler = DistributedSampler(
                DATA, num_replicas=world.dp_size, rank=world.dp_rank, shuffle=shuffle
            )
            return DataLoader(DATA, sampler=sampler)

    DATA = [1, 2, 3]
    """
    + _DDP,
    _HEAD
    + """
        def configure_dataloaders(self):
            return DataLoader(DATA, batch_size=2), None

    DATA = [1, 2, 3]
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.SINGLE_DEVICE(compile_model=False)
    )
    """,
    _HEAD
    + """
        def configure_dataloaders(self):
            from somewhere import split
            return DataLoader(split(DATA), batch_size=2), None

    DATA = [1, 2, 3]
    """
    + _DDP,
    """
    from torch.utils.data import DataLoader

    class Shards:
        def __init__(self, world):
            self.mine = range(world.dp_rank, 100, world.dp_size)

    class MyTrainer(Complete):
        def apply_replicate(self, dp_replicate_mesh):
            replicate(self.model, dp_replicate_mesh)

        def configure_dataloaders(self):
            return DataLoader(Shards(self.world)), None
    """
    + _DDP,
)

MATCHES = (
    _HEAD
    + """
        def configure_dataloaders(self):
            return DataLoader(DATA, batch_size=2), None

    DATA = [1, 2, 3]
    """
    + _DDP,
    _HEAD
    + """
        def configure_dataloaders(self):
            sampler = DistributedSampler(DATA)
            return DataLoader(DATA, batch_size=2, sampler=sampler), None

    DATA = [1, 2, 3]
    """
    + _DDP,
    """
    class Batches:
        def __init__(self, text, rank, ranks):
            self.mine = text[rank::ranks]

    class MyTrainer(Complete):
        def apply_replicate(self, dp_replicate_mesh):
            replicate(self.model, dp_replicate_mesh)

        def configure_dataloaders(self):
            return Batches("text", rank=0, ranks=1), None
    """
    + _DDP,
)

RANKS = frozenset(
    {"get_rank", "dp_rank", "get_local_rank", "environ", "getenv", "get_worker_info"}
)
"""What a class that splits its data by itself mentions."""


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        for config in splits(trainer):
            for loader in loaders(trainer):
                if not is_shown(loader.term) or reads_data_rank(loader.term):
                    continue
                made = _unsplit(loader, project)
                if made is None:
                    continue
                what = "training" if loader.is_training else "validation"
                sampler = made.last == "DistributedSampler"
                fact = f"No data-parallel rank reaches the {what} loader: all ranks read the same."
                if sampler:
                    fact = (
                        "DistributedSampler takes the global rank here, which is not the "
                        "data-parallel one as soon as ranks share a model."
                    )
                yield Match(
                    made.place,
                    fact,
                    "Give it self.world.dp_rank and self.world.dp_size.",
                    config=config.name,
                    fix=_fix(made) if sampler else None,
                )


def _unsplit(loader: Loader, project: Project) -> Call | None:
    """The call that should be given the rank, where it is certain that nothing splits."""
    for _, kind in classes(loader.term, project):
        if kind is None or kind.is_open or kind.mentioned & RANKS:
            return None
    for sampler in loader.samplers:
        given = {"rank", "num_replicas"} & set(sampler.keywords) or len(sampler.arguments) > 1
        return None if given else sampler
    for made in loader.torch_loaders:
        return made
    term = loader.term
    is_own = isinstance(term, Call) and isinstance(term.function, Code)
    return term if is_own and isinstance(term, Call) else None


def _fix(made: Call) -> Fix | None:
    if made.is_open:
        return None
    added = f"{made.spot.separator}num_replicas=self.world.dp_size, rank=self.world.dp_rank"
    return Fix("Split by the data-parallel rank", (Edit(made.spot.end, added),))
