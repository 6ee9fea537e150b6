"""The training data never ends, and neither does the run.

A stream that repeats itself is as good as any, once the run knows how many steps an
epoch or the whole run has. Without that number the first epoch never ends: no
validation, no checkpoint by epochs, no end of the learning-rate schedule.

Bad:

    class Samples(IterableDataset):
        def __iter__(self):
            while True:
                yield self.draw()

    TrainingParameters(n_epochs=3)

Good:

    TrainingParameters(n_epochs=3, train_steps_per_epoch=1_000)

How to fix: set `train_steps_per_epoch` or `max_steps`.
"""

from collections.abc import Iterator

from ..facts import Constant, Kind, Match, Note, Project, Severity, Trace, classes, loaders

CODE = "DT405"
NAME = "endless-data"
SEVERITY: Severity = "error"

_HEAD = """
    from torch.utils.data import DataLoader, IterableDataset

    class Samples(IterableDataset):
        def __iter__(self):
            while True:
                yield 1

    class MyTrainer(Complete):
        def configure_dataloaders(self):
            return DataLoader(Samples(), batch_size=4), None

    device = DeviceParameters.SINGLE_DEVICE(compile_model=False)
"""

PASSES = (
    _HEAD
    + """
    config = DreamTrainerConfig(
        device_parameters=device, training_parameters=TrainingParameters(max_steps=10)
    )
    """,
    _HEAD
    + """
    training = TrainingParameters(n_epochs=2, train_steps_per_epoch=10)
    config = DreamTrainerConfig(device_parameters=device, training_parameters=training)
    """,
    _HEAD.replace("yield 1", "if done(): break\n                yield 1")
    + """
    config = DreamTrainerConfig(device_parameters=device)
    """,
)

MATCHES = (
    _HEAD
    + """
    config = DreamTrainerConfig(
        device_parameters=device, training_parameters=TrainingParameters(n_epochs=2)
    )
    """,
    _HEAD
    + """
    config = DreamTrainerConfig(device_parameters=device)
    """,
)

ENDS = ("max_steps", "train_steps_per_epoch")


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        endless = [config for config in trainer.configs if _counts_nothing(config.value)]
        for loader in loaders(trainer) if endless else ():
            for call, kind in classes(loader.term, project):
                if kind is not None and loader.is_training and _repeats(kind):
                    yield Match(
                        endless[0].place,
                        f"{endless[0].name} counts no steps, and {kind.name} never ends.",
                        "Set training_parameters.train_steps_per_epoch or max_steps.",
                        config=endless[0].name,
                        notes=(Note(f"{kind.name} is read here", call.place),),
                    )


def _counts_nothing(value: object) -> bool:
    if not callable(value):
        return False
    return all(value(f"training_parameters.{name}") is None for name in ENDS)


def _repeats(kind: Kind) -> bool:
    """Whether `__iter__` yields for ever: in `while True`, and nothing leaves it."""
    trace = kind.traces.get("__iter__")
    if trace is None or trace.is_cut or any(trace.of_kind("return", "leave", "raise")):
        return False
    return any(_is_endless(trace, index) for index, _ in enumerate(trace.acts))


def _is_endless(trace: Trace, index: int) -> bool:
    act = trace.acts[index]
    loops = [guard for guard in act.guards if guard.kind == "loop"]
    constants = [guard.test for guard in loops if isinstance(guard.test, Constant)]
    return act.kind == "yield" and any(bool(test.value) for test in constants)
