"""A step catches what one rank alone may meet, and goes on.

Memory runs out on one rank, a batch is bad on another. The rank that skips its backward
pass misses a collective that all others wait in: the job hangs for the time-out of the
process group, and the message names another place.

Bad:

    try:
        self.backward(self.model(batch))
    except torch.OutOfMemoryError:
        return {}

Good:

    self.backward(self.model(batch))        # the runtime ends all ranks, and says which

How to fix: let the exception end the run; it is saved, and restarted where a launcher
does that. Check batches before the forward pass, where all ranks can agree.
"""

from collections.abc import Iterator

from ..facts import (
    Behaviour,
    Constant,
    Display,
    Foreign,
    Guard,
    Match,
    Project,
    Severity,
    Trace,
    is_of_model,
    is_parallel,
)

CODE = "DT511"
NAME = "swallowed-exception"
SEVERITY: Severity = "error"

PASSES = (
    """
    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            try:
                self.backward(self.model(batch))
            except Exception:
                print("On one device nobody waits.")
            return {}

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.SINGLE_DEVICE(compile_model=False)
    )
    """,
    """
    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            try:
                import flash
            except ImportError:
                flash = None
            return {"loss": self.model(batch)}
    """,
    """
    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            try:
                self.backward(self.model(batch))
            except RuntimeError as error:
                raise ValueError(f"batch {batch_idx}") from error
            return {}
    """,
    """
    class MyTrainer(Complete):
        def validation_step(self, batch, batch_idx):
            try:
                name = batch["name"]
            except KeyError:
                name = ""
            return {"val/loss": self.model(batch)}
    """,
)

MATCHES = (
    """
    import torch

    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            try:
                loss = self.model(batch)
                self.backward(loss)
            except torch.OutOfMemoryError:
                return {}
            return {"loss": loss}

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.DDP(compile_model=False)
    )
    """,
    """
    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            try:
                self.backward(self.model(batch))
                self.step(self.optimizer)
            except Exception as error:
                print(error)
            return {}

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.DDP(compile_model=False)
    )
    """,
)

OF_ONE_RANK = ("OutOfMemoryError", "RuntimeError", "Exception", "BaseException")


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        configs = [config for config in trainer.configs if is_parallel(config)]
        for trace in trainer.behaviour.named("training_step") if configs else ():
            told: set[int] = set()
            for guard in _trials(trace, trainer.behaviour):
                caught = _caught(guard)
                if caught is None or id(guard.test) in told or _raises(trace):
                    continue
                told.add(id(guard.test))
                yield Match(
                    guard.spot.place._replace(end_line=guard.spot.place.line, end_column=10**6),
                    f"A rank that meets {caught} goes on alone, and the others wait for it.",
                    "Let the exception end the run.",
                    certain=any(config.is_wide(*config.axes) for config in configs),
                    config=configs[0].name,
                )


def _trials(trace: Trace, behaviour: Behaviour) -> Iterator[Guard]:
    """The `try` around forward, backward or step."""
    for act, call in trace.calls():
        verb = call.name in ("self.backward", "self.step") or call.last == "backward"
        if verb or is_of_model(call, behaviour):
            yield from (guard for guard in act.guards if guard.kind == "try")


def _caught(guard: Guard) -> str | None:
    pending = list(guard.test.items) if isinstance(guard.test, Display) else []
    for test in pending:
        if isinstance(test, Display):
            pending += test.items
        elif isinstance(test, Constant):
            return "any exception"
        elif isinstance(test, Foreign) and test.last in OF_ONE_RANK:
            return test.last
    return None


def _raises(trace: Trace) -> bool:
    return any(guard.kind == "except" for act in trace.of_kind("raise") for guard in act.guards)
