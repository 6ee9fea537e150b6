"""No configuration calls a hook that the trainer defines.

It is no fault, but neither is it tested: whoever turns its mode on one day runs it for
the first time.

Bad:

    class MyTrainer(DreamTrainer):
        def apply_compile(self): ...      # every configuration: compile_model=False

Good: a configuration that turns the mode on, or no such hook.

How to fix: nothing has to be. Add a configuration that calls the hook, or remove it.
"""

from collections.abc import Iterator

from ..facts import Match, Project, Severity

CODE = "DT203"
NAME = "unused-hook"
SEVERITY: Severity = "info"

PASSES = (
    """
    class MyTrainer(Complete):
        def apply_compile(self):
            self.model.compile()


    config = DreamTrainerConfig(
        device_parameters=DeviceParameters()
    )
    """,
    """
    class MyTrainer(Complete):
        def apply_compile(self):
            self.model.compile()
    """,
    """
    class MyTrainer(Complete):
        def init_weights(self):
            self.model.reset()


    config = DreamTrainerConfig(
        device_parameters=DeviceParameters(compile_model=False)
    )
    """,
)

MATCHES = (
    """
    class MyTrainer(Complete):
        def apply_compile(self):
            self.model.compile()


    config = DreamTrainerConfig(
        device_parameters=DeviceParameters(compile_model=False)
    )
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in () if project.narrowed else project.trainers:
        for name, hook in project.hooks.items():
            method = trainer.methods.get(name)
            # What is inherited may serve another trainer.
            if method is None or method.inherited or isinstance(hook.needed, str):
                continue
            if trainer.configs and all(c.hooks[name] == "unused" for c in trainer.configs):
                yield Match(
                    method.place,
                    f"No configuration calls {hook.call} of {trainer.name}.",
                    f"It is called by {' or '.join(hook.needed)}.",
                )
