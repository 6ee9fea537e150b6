"""A seed contains the number of a rank.

Weights have to come out the same wherever they are replicated, and as parts of one model
where they are sharded. The runtime sees to it from one seed that all ranks share, and gives
each rank a stream of its own afterwards, for dropout and augmentation. With `seed + rank`
ranks draw other numbers for what is meant to be one model, the runs of a resumed mesh cannot
be compared, and replicas that start apart stay apart.

Bad:

    config = Config(seed=1234 + int(os.environ["RANK"]))

    def init_weights(self):
        torch.manual_seed(self.config.seed + self.world.rank)

Good:

    config = Config(seed=1234)

How to fix: leave the rank out. What shall differ between ranks differs without your doing.
"""

from collections.abc import Iterator

from ..facts import (
    BEFORE_MEMORY,
    Act,
    Call,
    Code,
    Match,
    Path,
    Place,
    Project,
    Severity,
    is_of_rank,
)

CODE = "DT308"
NAME = "rank-in-seed"
SEVERITY: Severity = "error"

SEEDS = ("manual_seed", "manual_seed_all", "seed", "seed_everything", "seed_all", "set_seed")

PASSES = (
    """
    import torch

    class MyTrainer(Complete):
        def init_weights(self):
            torch.manual_seed(self.config.seed)
    """,
    """
    import torch

    class MyTrainer(Complete):
        def configure_dataloaders(self):
            crops = torch.Generator().manual_seed(self.config.seed + self.world.dp_rank)
            return make_loader(crops), None
    """,
    """
    import random

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = make_model(rank=8)
            random.seed(self.config.seed + self.model.rank)
    """,
)

MATCHES = (
    """
    import torch

    class MyTrainer(Complete):
        def init_weights(self):
            self.start(self.world.rank)

        def start(self, number):
            torch.manual_seed(1234 + number)
    """,
    """
    import os

    @dataclass(kw_only=True)
    class Config(DreamTrainerConfig):
        width: int = 4

    class MyTrainer(Complete):
        config: Config

    def main():
        MyTrainer(Config(seed=7 + int(os.environ["RANK"]))).fit()
    """,
    """
    import torch

    class MyTrainer(Complete):
        def init_weights(self):
            seed = self.config.seed
            seed += torch.distributed.get_rank() * 1000
            torch.cuda.manual_seed_all(seed)
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        for trace in trainer.behaviour.named("__init__", *BEFORE_MEMORY, "init_weights"):
            for act, call in trace.calls(*SEEDS):
                first = call.arguments[0] if call.arguments else None
                if not call.is_foreign() or first is None or not is_of_rank(first):
                    continue
                early = trace.name != "init_weights"
                yield _match(act, act.place, "warning" if early else None)
    for script in project.scripts:
        for trace in script.traces:
            for act, call in trace.calls():
                seed = call.keywords.get("seed") if call.keywords else None
                if seed is not None and _is_config(call) and is_of_rank(seed):
                    yield _match(act, call.spot.keywords["seed"].place, None)


def _match(act: Act, place: Place, severity: Severity | None) -> Match:
    return Match(
        place,
        "This seed contains the number of a rank: what is meant to be one model starts "
        "differently on each rank.",
        "Give every rank the same seed; the runtime gives each its own stream after init_weights.",
        notes=act.notes,
        severity=severity,
    )


def _is_config(call: Call) -> bool:
    """Whether a call makes a configuration: a sampler's seed is another matter."""
    if call.name == "dataclasses.replace":
        return any(isinstance(term, Path) and "config" in term.last for term in call.arguments)
    is_class = isinstance(call.function, Code) and call.function.kind == "class"
    return (is_class and "Config" in call.last) or call.last == "DreamTrainerConfig"
