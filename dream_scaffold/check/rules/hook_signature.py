"""A hook cannot take the arguments that it is called with.

The runtime calls every hook with the arguments of its contract, by position. One that
takes fewer or more fails with a TypeError when it is first called: for `validation_step`
that is after the first epoch.

Bad:

    def validation_step(self, batch): ...

Good:

    def validation_step(self, batch, batch_idx): ...

How to fix: write the parameters that the help shows. Other names, defaults, `*args` and
`**kwargs` are fine.
"""

from collections.abc import Iterator

from ..facts import Match, Project, Severity

CODE = "DT204"
NAME = "hook-signature"
SEVERITY: Severity = "error"

PASSES = (
    """
    class MyTrainer(Complete):
        def validation_step(self, batch, index):
            return {}
    """,
    """
    class MyTrainer(Complete):
        def validation_step(self, *args, **kwargs):
            return {}
    """,
    """
    class MyTrainer(Complete):
        def model_state_dict(self, **_):
            return {}
    """,
    """
    class MyTrainer(Complete):
        @staticmethod
        def count_items(batch):
            return len(batch)
    """,
    """
    class MyTrainer(Complete):
        def init_weights(self, std=0.02):
            self.model.reset(std)
    """,
)

MATCHES = (
    """
    class MyTrainer(Complete):
        def validation_step(self, batch):
            return {}
    """,
    """
    class MyTrainer(Complete):
        def init_weights(self, std):
            self.model.reset(std)
    """,
    """
    class MyTrainer(Complete):
        def init_weights(self, *, std):
            self.model.reset(std)
    """,
    """
    class MyTrainer(Complete):
        def init_weights():
            return None
    """,
    """
    class MyTrainer(Complete):
        @staticmethod
        def count_items(self, batch):
            return len(batch)
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        for name, hook in project.hooks.items():
            method = trainer.methods.get(name)
            signature = method.signature if method is not None else None
            if method is None or signature is None or signature.takes(len(hook.parameters)):
                continue
            parameters = ", ".join(("self", *hook.parameters))
            yield Match(
                method.place,
                f"The runtime calls {hook.call}, but {method.owner}.{name} is "
                f"{name}{signature.text}.",
                f"Write def {name}({parameters}).",
            )
