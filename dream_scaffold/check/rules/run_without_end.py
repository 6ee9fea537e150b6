"""A run has no end: endless epochs or endless data, and nothing that counts steps.

`n_epochs=float("inf")` is meant to go with `max_steps`, a time limit or a callback that stops
the run. Without any of them the learning-rate schedule has no end to aim at, the run holds its
machines until somebody kills it, and the last checkpoint is an accident. A training loader
that goes round for ever does not even end its first epoch: nothing is validated.

Bad:

    TrainingParameters(n_epochs=float("inf"))

    def configure_dataloaders(self):
        return itertools.cycle(self.loader), None

Good:

    TrainingParameters(n_epochs=float("inf"), max_steps=100_000)

    def configure_dataloaders(self):
        return self.loader, None  # every epoch reads it anew

How to fix: give `max_steps`, or `CheckpointParameters(time_limit_minutes=...)`. For endless
data `train_steps_per_epoch` says where an epoch ends.
"""

from collections.abc import Iterator
from math import inf

from ..facts import Call, Configuration, Display, Match, Path, Project, Severity, Trainer

CODE = "DT113"
NAME = "run-without-end"
SEVERITY: Severity = "warning"

PASSES = (
    """
    config = DreamTrainerConfig(
        training_parameters=TrainingParameters(n_epochs=float("inf"), max_steps=10)
    )
    """,
    """
    config = DreamTrainerConfig(
        training_parameters=TrainingParameters(n_epochs=float("inf")),
        checkpoint_parameters=CheckpointParameters(time_limit_minutes=60),
    )
    """,
    """
    from dream_trainer.callbacks import Callback

    class StopEarly(Callback):
        def post_validation_epoch(self, trainer, result):
            trainer.is_stopping = trainer.is_stopping or result["val/loss"] > 1

    config = DreamTrainerConfig(
        training_parameters=TrainingParameters(n_epochs=float("inf")), callbacks=[StopEarly()]
    )
    """,
    """
    import itertools

    class MyTrainer(Complete):
        def configure_dataloaders(self):
            return itertools.cycle(make_loader()), None

    config = DreamTrainerConfig(
        training_parameters=TrainingParameters(n_epochs=3, train_steps_per_epoch=100)
    )
    """,
    """
    config = DreamTrainerConfig(training_parameters=TrainingParameters())
    """,
)

MATCHES = (
    """
    config = DreamTrainerConfig(
        training_parameters=TrainingParameters(n_epochs=float("inf"))
    )
    """,
    """
    import math

    config = DreamTrainerConfig(training_parameters=TrainingParameters(n_epochs=math.inf))
    """,
    """
    from itertools import cycle

    class MyTrainer(Complete):
        def configure_dataloaders(self):
            endless = cycle(make_loader())
            return endless, None

    config = DreamTrainerConfig(training_parameters=TrainingParameters(n_epochs=3))
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        configs = [config for config in trainer.configs if _counts_no_steps(config)]
        if not configs or _is_stopped(project):
            continue
        endless = _endless(trainer)
        for config in configs:
            epochs = config.settings.get("training_parameters.n_epochs")
            if epochs is None or not epochs.is_known:
                continue
            if epochs.value == inf:
                yield Match(
                    epochs.place,
                    "Nothing ends this run: n_epochs is infinite, and max_steps is not given.",
                    "Give max_steps, or CheckpointParameters(time_limit_minutes=...).",
                    config=config.name,
                )
            elif endless is not None and _is_none(config, "train_steps_per_epoch"):
                yield Match(
                    endless.place,
                    f"{endless.last}() never ends, and so the first epoch never does.",
                    "Return the loader itself, or give max_steps or train_steps_per_epoch.",
                    config=config.name,
                )


def _is_none(config: Configuration, name: str) -> bool:
    return config.value(f"training_parameters.{name}") is None


def _counts_no_steps(config: Configuration) -> bool:
    limit = config.settings.get("checkpoint_parameters.time_limit_minutes")
    checkpoints = config.settings.get("checkpoint_parameters")
    if limit is None:
        # No parameters at all, and no time limit; or parameters that are not known.
        is_unlimited = checkpoints is None or (checkpoints.is_known and checkpoints.value is None)
    else:
        is_unlimited = limit.is_known and limit.value is None
    return is_unlimited and _is_none(config, "max_steps")


def _is_stopped(project: Project) -> bool:
    """Whether something of the project may end a run."""
    return any(
        isinstance(act.target, Path) and act.target.last == "is_stopping"
        for trace in project.traces
        for act in trace.of_kind("set", "grow")
    )


def _endless(trainer: Trainer) -> Call | None:
    """What makes the training data endless."""
    for trace in trainer.behaviour.named("configure_dataloaders"):
        for act in trace.returns:
            loaders = act.term
            if isinstance(loaders, Display) and loaders.items:
                made = trainer.behaviour.made_by(loaders.items[0])
                if made is not None and made.name in ("itertools.cycle", "itertools.count"):
                    return made
    return None
