"""A method looks like a misspelt hook.

Nothing calls it. Where the hook is optional the run goes on without it, and nobody is
told: weights stay as they are drawn, validation never happens.

Bad:

    def validaton_step(self, batch, batch_idx): ...

Good:

    def validation_step(self, batch, batch_idx): ...

How to fix: rename the method. If it is meant as a method of your own, call it somewhere
in the class, or give it a name that is further away.
"""

from collections.abc import Iterator

from ..facts import Edit, Fix, Match, Project, Severity

CODE = "DT205"
NAME = "misspelt-hook"
SEVERITY: Severity = "warning"

PASSES = (
    """
    class MyTrainer(Complete):
        def validation_step(self, batch, batch_idx):
            return {}
    """,
    """
    class MyTrainer(Complete):
        def loader(self):
            return []
    """,
    """
    class MyTrainer(Complete):
        def training_steps(self):
            return 10
    """,
    """
    class MyTrainer(Complete):
        def init_weight(self):
            return 1

        def configure_metrics(self):
            self.init_weight()
    """,
)

MATCHES = (
    """
    class MyTrainer(Complete):
        def apply_fully_shards(self, config):
            shard(self.model)
    """,
    """
    class MyTrainer(Complete):
        def validaton_step(self, batch, batch_idx):
            return {}
    """,
    """
    class MyTrainer(Complete):
        def config_schedulers(self):
            return {}
    """,
)


LEAST_LIKENESS = 0.85


def check(project: Project) -> Iterator[Match]:
    beginnings = {name[:4] for name in project.hooks}
    for trainer in project.trainers:
        missing = [name for name in project.hooks if name not in trainer.hooks]
        for name, method in trainer.methods.items():
            own = name not in project.hooks and name not in trainer.mentioned
            if not own or name[:4] not in beginnings:
                continue
            from difflib import get_close_matches

            for near in get_close_matches(name, missing, n=1, cutoff=LEAST_LIKENESS):
                yield Match(
                    method.place,
                    f"Nothing calls {method.owner}.{name}, which looks like {near}.",
                    f"Rename it to {near}.",
                    fix=Fix(f"Rename it to {near}", (Edit(method.place, near),), safe=False),
                )
