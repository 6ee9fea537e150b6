"""An `IterableDataset` is split over neither ranks nor workers.

Every rank, and every worker of its loader, iterates over all of it: each sample is seen
ranks times workers times. Nothing fails, an epoch only takes that much longer.

Bad:

    class Lines(IterableDataset):
        def __iter__(self):
            yield from open("text.txt")

Good:

    class Lines(IterableDataset):
        def __init__(self, rank, ranks):
            self.rank, self.ranks = rank, ranks

        def __iter__(self):
            worker = get_worker_info()
            number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
            mine = self.rank * workers + number
            yield from islice(open("text.txt"), mine, None, self.ranks * workers)

How to fix: take every `ranks * workers`-th sample, or shards of the data.
"""

from collections.abc import Iterator

from ..facts import Kind, Loader, Match, Note, Project, Severity, classes, loaders, splits

CODE = "DT404"
NAME = "stream-not-split"
SEVERITY: Severity = "error"

_HEAD = """
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info

    class MyTrainer(Complete):
        def apply_replicate(self, dp_replicate_mesh):
            replicate(self.model, dp_replicate_mesh)

        def configure_dataloaders(self):
            return DataLoader(Lines(self.world.dp_rank), num_workers=4), None

    class Lines(IterableDataset):
"""

_DDP = """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.DDP(compile_model=False)
    )
"""

PASSES = (
    _HEAD
    + """
        def __init__(self, rank):
            self.rank = rank

        def __iter__(self):
            yield self.rank
    """
    + _DDP,
    _HEAD
    + """
        def __iter__(self):
            yield get_worker_info()
    """
    + _DDP,
    _HEAD
    + """
        def __iter__(self):
            yield 1
    """,
)

MATCHES = (
    _HEAD
    + """
        def __init__(self, *_):
            pass

        def __iter__(self):
            for line in open("text.txt"):
                yield line
    """
    + _DDP,
    _HEAD.replace("Lines(IterableDataset)", "Reader(IterableDataset)")
    + """
        def __iter__(self):
            return iter(range(10))

    class Lines(Reader):
        def __init__(self, *_):
            pass
    """
    + _DDP,
)

SPLITTERS = frozenset(
    {"get_worker_info", "rank", "dp_rank", "get_rank", "num_replicas", "world", "environ"}
    | {"split_dataset_by_node", "shard", "num_shards", "ranks", "islice", "worker_init_fn"}
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        configs = list(splits(trainer))
        for loader in loaders(trainer):
            for _, kind in classes(loader.term, project):
                if kind is None or not _reads_all(kind) or not configs:
                    continue
                yield Match(
                    kind.place,
                    f"{kind.name} is split over neither ranks nor workers: every one of them "
                    "reads all of it.",
                    "Take a share by rank, and by get_worker_info().",
                    config=configs[0].name,
                    notes=tuple(_loaded(loader)),
                )


def _reads_all(kind: Kind) -> bool:
    is_stream = kind.derives("IterableDataset", "IterDataPipe") and not kind.is_open
    return is_stream and not kind.mentioned & SPLITTERS


def _loaded(loader: Loader) -> Iterator[Note]:
    for call in loader.torch_loaders:
        if "worker_init_fn" not in call.keywords:
            yield Note("loaded here", call.place)
