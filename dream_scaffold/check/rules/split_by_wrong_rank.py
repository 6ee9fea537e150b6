"""Data is split by the global rank, or by the rank within a node.

Ranks that share a model, by tensor, context or pipeline parallelism, have different
global ranks and must read the same batches: they read different ones, the loss stays
finite, and replicated weights drift apart. By the local rank, every node trains on the
same shards.

Bad:

    DistributedSampler(data, num_replicas=self.world.size, rank=self.world.rank)
    DistributedSampler(data, num_replicas=n, rank=int(os.environ["LOCAL_RANK"]))

Good:

    DistributedSampler(
        data, num_replicas=self.world.dp_size, rank=self.world.dp_rank
    )

How to fix: use `self.world.dp_rank` and `self.world.dp_size`. `--fix` writes them in a
`DistributedSampler`.
"""

from collections.abc import Iterator

from ..facts import (
    Call,
    Edit,
    Fix,
    Match,
    Project,
    Severity,
    Term,
    is_of_group,
    is_of_rank,
    is_parallel,
)

CODE = "DT402"
NAME = "split-by-wrong-rank"
SEVERITY: Severity = "error"

_DDP = """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.DDP(compile_model=False)
    )
"""

_HEAD = """
    import os
    import torch.distributed as dist
    from torch.utils.data import DataLoader, DistributedSampler

    DATA = [1, 2, 3]

    class MyTrainer(Complete):
        def apply_replicate(self, dp_replicate_mesh):
            replicate(self.model, dp_replicate_mesh)

        def configure_dataloaders(self):
"""

PASSES = (
    _HEAD
    + """
            ranks = {"num_replicas": self.world.dp_size, "rank": self.world.dp_rank}
            return DataLoader(DATA, sampler=DistributedSampler(DATA, **ranks)), None
    """
    + _DDP,
    _HEAD
    + """
            if self.world.rank == 0:
                print("reading")
            return make_loader(DATA, name=f"rank {self.world.rank}"), None
    """
    + _DDP,
    _HEAD
    + """
            sampler = DistributedSampler(DATA, num_replicas=8, rank=self.world.rank)
            return DataLoader(DATA, sampler=sampler), None

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.SINGLE_DEVICE(compile_model=False)
    )
    """,
)

MATCHES = (
    _HEAD
    + """
            size, rank = self.world.dp_size, self.world.rank
            sampler = DistributedSampler(DATA, num_replicas=size, rank=rank)
            return DataLoader(DATA, sampler=sampler), None
    """
    + _DDP,
    _HEAD
    + """
            sampler = DistributedSampler(
                DATA, num_replicas=dist.get_world_size(), rank=dist.get_rank()
            )
            return DataLoader(DATA, sampler=sampler), None
    """
    + _DDP,
    _HEAD
    + """
            return self.shards(int(os.environ["LOCAL_RANK"])), None

        def shards(self, number):
            return DataLoader(load("data").shard(8, index=number))
    """
    + _DDP,
)

RANKS = ("rank", "index", "shard_index", "shard_id", "process_index", "process_rank")
SIZES = ("num_replicas", "world_size", "num_shards", "ranks")
OF_ALL = ("get_world_size", "world_size", "WORLD_SIZE", "local_world_size")


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        config = next(filter(is_parallel, trainer.configs), None)
        if config is None:
            continue
        for trace in trainer.behaviour.named("configure_dataloaders"):
            for act, call in trace.calls():
                for name, right, shown in _wrong(call):
                    spot = call.spot.keywords.get(name)
                    text = spot.text if spot is not None else shown
                    yield Match(
                        spot.place if spot is not None else call.place,
                        f"`{text}` is no data-parallel {_noun(name)}: ranks that share a model "
                        "read different batches, or nodes the same ones.",
                        f"Use {right}.",
                        config=config.name,
                        notes=act.notes,
                        fix=_fix(call, name, right),
                    )


def _wrong(call: Call) -> Iterator[tuple[str, str, str]]:
    """The arguments that split by something else: name, what is right, what is written."""
    given: dict[str, Term] = dict(call.keywords)
    if call.last == "DistributedSampler":
        given |= dict(zip(("dataset", "num_replicas", "rank"), call.arguments, strict=False))
    for name, term in given.items():
        if name in RANKS and is_of_rank(term) and not is_of_group(term):
            yield name, "self.world.dp_rank", name
        elif name in SIZES and call.last == "DistributedSampler" and _is_of_all(term):
            yield name, "self.world.dp_size", name


def _is_of_all(term: Term) -> bool:
    return term.mentions(*OF_ALL) or "self.world.size" in term.origins


def _noun(name: str) -> str:
    return "rank" if name in RANKS else "size"


def _fix(call: Call, name: str, right: str) -> Fix | None:
    spot = call.spot.keywords.get(name)
    if call.last != "DistributedSampler" or spot is None:
        return None
    return Fix(f"Use {right}", (Edit(spot.place, right),))
