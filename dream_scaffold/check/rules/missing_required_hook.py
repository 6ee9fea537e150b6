"""A hook that every run calls is not defined.

Without models, optimizers, data and a training step there is nothing to run. Start-up
stops with the same words.

Bad:

    class MyTrainer(DreamTrainer):
        def configure_models(self): ...
        # nothing else

Good: `configure_models`, `configure_optimizers`, `configure_dataloaders` and
`training_step` are all there, in the class or in one that it derives from.

How to fix: define the hook. A class that others derive from, or that has abstract
methods, is checked only where it is launched itself.
"""

from collections.abc import Iterator

from ..facts import Match, Project, Severity

CODE = "DT206"
NAME = "missing-required-hook"
SEVERITY: Severity = "error"

PASSES = (
    """
    class MyTrainer(Complete):
        pass
    """,
    """
    class Part(DreamTrainer):
        def configure_models(self):
            self.model = 1


    class MyTrainer(Part, Complete):
        pass
    """,
)

MATCHES = (
    """
    class MyTrainer(DreamTrainer):
        pass
    """,
    """
    class Part(DreamTrainer):
        def configure_models(self):
            self.model = 1


    class MyTrainer(Part):
        def training_step(self, batch, batch_idx):
            return {}
    """,
)


def check(project: Project) -> Iterator[Match]:
    yield from project.refused(CODE)
