"""A hook that runs is still a stub.

Its body is empty, or only raises NotImplementedError. The first fails silently: a model
that `apply_fully_shard` leaves alone is not sharded, and its gradients are never
averaged. The second stops the run at start-up.

Bad:

    def apply_tensor_parallel(self, tp_mesh):
        raise NotImplementedError("Write the plan.")

Good:

    def apply_tensor_parallel(self, tp_mesh):
        parallelize_module(self.model, tp_mesh, plan)

How to fix: write the hook, or turn off the mode that calls it. A stub that no
configuration calls is left alone. A hook that only hands on to a method which is a stub
is one, too.
"""

from collections.abc import Iterator

from ..facts import (
    Constant,
    Display,
    Match,
    Project,
    Severity,
    Trainer,
    loaders,
)

CODE = "DT202"
NAME = "stub-hook"
SEVERITY: Severity = "error"

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
            pass


    config = DreamTrainerConfig(
        device_parameters=DeviceParameters(compile_model=False)
    )
    """,
    """
    class MyTrainer(Complete):
        def init_weights(self):
            pass


    config = DreamTrainerConfig(
        device_parameters=DeviceParameters(compile_model=False)
    )
    """,
)

MATCHES = (
    """
    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            return self.train_on(batch)

        def train_on(self, batch):
            raise NotImplementedError(f"{batch} is not learnt from yet")
    """,
    """
    class Shared(Complete):
        def apply_compile(self):
            "Left to the child."

    class MyTrainer(Shared):
        def apply_compile(self):
            super().apply_compile()

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters()
    )
    """,
    """
    class MyTrainer(Complete):
        def init_weights(self):
            raise NotImplementedError
    """,
    """
    class MyTrainer(Complete):
        def configure_dataloaders(self):
            return [1], [2]

        def validation_step(self, batch, batch_idx):
            raise NotImplementedError
    """,
    """
    from torch import nn

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = nn.Linear(2, 2)

        def init_weights(self):
            pass
    """,
    """
    class MyTrainer(Complete):
        def apply_compile(self):
            pass


    config = DreamTrainerConfig(
        device_parameters=DeviceParameters()
    )
    """,
    """
    class MyTrainer(Complete):
        def apply_compile(self):
            "Compile it."
            raise NotImplementedError("Write it.")


    config = DreamTrainerConfig(
        device_parameters=DeviceParameters()
    )
    """,
    """
    class MyTrainer(Complete):
        def configure_models(self): ...
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        for name, hook in project.hooks.items():
            if not trainer.is_stub(name):
                continue
            if hook.needed == "optional":
                yield from _optional(project, trainer, name)
            elif hook.needed == "always":
                message = f"Every run calls {hook.call}, which is still a stub."
                yield Match(trainer.methods[name].place, message, f"Write it: {hook.purpose}.")
            else:
                yield from _of_mode(project, trainer, name)


def _of_mode(project: Project, trainer: Trainer, name: str) -> Iterator[Match]:
    hook, place = project.hooks[name], trainer.methods[name].place
    for config in trainer.configs:
        need = config.hooks[name]
        if need != "unused":
            calls = "calls" if need == "required" else "may call"
            yield Match(
                place,
                f"{config.name} {calls} {hook.call}, which is still a stub.",
                f"Write it: {hook.purpose}.",
                certain=need == "required",
                config=config.name,
                notes=config.reasons[name],
            )


def _optional(project: Project, trainer: Trainer, name: str) -> Iterator[Match]:
    """A hook with a default is worse than none where it refuses, or fills no weights."""
    hook, place = project.hooks[name], trainer.methods[name].place
    remedy = f"Write it: {hook.purpose}; or leave it out."
    refuses = any(trace.refuses for trace in trainer.behaviour.named(name))
    if name == "init_weights" and not refuses:
        if any(model.certain for model in trainer.behaviour.models.values()):
            fact = "init_weights is still a stub: every weight keeps the garbage of memory."
            yield Match(place, fact, remedy)
    elif refuses and (is_called := _is_called(trainer, name)) is not False:
        calls = "Every run calls" if is_called else "A run may call"
        fact = f"{calls} {hook.call}, which is still a stub."
        yield Match(place, fact, remedy, certain=is_called is True)


def _is_called(trainer: Trainer, name: str) -> bool | None:
    """Whether every run calls an optional hook; None: unknown."""
    if name == "model_state_dict":
        return None
    if name != "validation_step":
        return True
    given = [loader.term for loader in loaders(trainer) if not loader.is_training]
    if given and all(isinstance(term, Constant) and term.value is None for term in given):
        return False
    return True if given and all(isinstance(term, Display) for term in given) else None
