"""Each rank decides by itself whether to do what all have to do together.

A clock, a random number, the file system and a loss are not the same on every rank at the same
time. Where one of them decides over a collective, a save, a step or the end of the run, some
ranks go ahead and the others do not: the run hangs, days later and not in a test. By a
clock that is sure to happen, and an error.

Bad:

    if time.time() - self.start > 3600:
        dcp.save(state, checkpoint_id=path)
    if loss.isfinite():
        self.backward(loss)

Good:

    if self.world.broadcast(time.time() - self.start > 3600):
        dcp.save(state, checkpoint_id=path)
    self.backward(loss)  # error_if_nonfinite=True ends the run where a gradient is not finite

How to fix: let rank 0 decide with `self.world.broadcast(...)`, or use what the runtime decides for
all: `checkpoint_every_n_minutes`, `time_limit_minutes`, or the result of `post_validation_epoch`,
which is the same on every rank. See docs/checkpointing.md and docs/callbacks.md.
"""

import re
from collections.abc import Iterator, Sequence

from ..facts import (
    Act,
    Attribute,
    Call,
    Constant,
    Derived,
    Item,
    Match,
    Path,
    Project,
    Severity,
    Spot,
    Term,
    Trace,
    collective,
    hooks_of,
    is_at,
    may_be_parallel,
    names_group,
)

CODE = "DT608"
NAME = "ranks-decide-apart"
SEVERITY: Severity = "warning"

CLOCKS = ("time.time", "time.monotonic", "time.perf_counter", "datetime.datetime.now")
FILES = ("exists", "isfile", "isdir", "listdir", "scandir", "glob", "getmtime", "stat")
DICE = re.compile(r"(random|numpy\.random|torch\.rand\w*|secrets)(\.\w+)*")
AGREED = (
    *("broadcast", "broadcast_object_list", "settle", "all_reduce", "all_gather"),
    *("all_gather_object", "reduce", "agree", "poll", "is_rank_zero", "rank"),
)
ORDERS = ("Lt", "Gt", "LtE", "GtE", "Chain")
VALUES = ("isnan", "isfinite", "isinf", "item", "any", "all", "float", "bool", "max", "min", "sum")

_IMPORTS = """
    import os
    import random
    import time

    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch import nn

    from dream_trainer.callbacks import Callback

    config = DreamTrainerConfig(device_parameters=DeviceParameters.FSDP(compile_model=False))
"""

PASSES = (
    _IMPORTS
    + """
    class Save(Callback):
        def on_boundary(self, trainer):
            if trainer.world.broadcast(time.time() - self.start > 60):
                dcp.save({}, checkpoint_id="x")
            if time.time() - self.start > 60:
                print("slow")
    """,
    _IMPORTS
    + """
    class StopEarly(Callback):
        def post_validation_epoch(self, trainer, result):
            if result["val/loss"] > self.best:
                trainer.is_stopping = True
    """,
    _IMPORTS
    + """
    class MyTrainer(Complete):
        def configure_models(self):
            self.model = nn.Linear(2, 2)

        def training_step(self, batch, batch_idx):
            loss = self.model(batch["x"])
            if "weight" in batch:
                loss = loss * batch["weight"]
            self.backward(loss.mean())
            if batch_idx % 2:
                self.step(self.optimizer)
            return {"loss": loss}
    """,
    _IMPORTS
    + """
    class MyTrainer(Complete):
        def init_weights(self):
            if os.path.exists("table.pt"):
                self.table = torch.load("table.pt")
    """,
)

MATCHES = (
    _IMPORTS
    + """
    class StopEarly(Callback):
        def post_train_step(self, trainer, result, batch, batch_idx):
            if result["train/loss"] > 100:
                trainer.is_stopping = True
    """,
    _IMPORTS
    + """
    class Limit(Callback):
        def post_train_step(self, trainer, *_):
            trainer.is_stopping |= os.path.exists("stop")
    """,
    _IMPORTS
    + """
    class MyTrainer(Complete):
        def init_weights(self):
            if os.path.exists("base"):
                dcp.load({"model": self.model}, checkpoint_id="base")
    """,
    _IMPORTS
    + """
    class MyTrainer(Complete):
        def configure_models(self):
            self.model = nn.Linear(2, 2)

        def training_step(self, batch, batch_idx):
            loss = self.model(batch).mean()
            if not torch.isfinite(loss):
                return {"loss": loss}
            self.backward(loss)
            return {"loss": loss}
    """,
    _IMPORTS
    + """
    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            if random.random() < 0.1:
                dist.barrier()
            return {"loss": self.model(batch)}
    """,
)


def check(project: Project) -> Iterator[Match]:
    certain = may_be_parallel(project)
    own = {id(t) for trainer in project.trainers for t in trainer.behaviour.traces.values()}
    for trace, models in hooks_of(project):
        trainer = "self" if id(trace) in own else "trainer"
        told: set[int] = set()
        for act in trace.acts:
            shown = _shared(act, trainer)
            for test, spot in _conditions(act) if shown is not None else ():
                what = _local(test, trace, models) if id(test) not in told else None
                if what is None:
                    continue
                told.add(id(test))
                written = " ".join(spot.text.split())
                yield Match(
                    act.place,
                    f"`{written}` hangs on {what}, which each rank sees for itself: some may "
                    f"get to {shown} and others not.",
                    "Let rank 0 decide for all: self.world.broadcast(...).",
                    certain,
                    notes=act.notes,
                    severity="error" if what == "a clock" else None,
                )


def _conditions(act: Act) -> Iterator[tuple[Term, Spot]]:
    """What decides whether an act happens; of an assignment, what is assigned."""
    for guard in act.guards:
        if guard.kind in ("if", "else", "after"):
            yield guard.test, guard.spot
    if act.kind in ("set", "grow"):
        yield act.term, act.spot


def _shared(act: Act, trainer: str) -> str | None:
    """What all ranks have to do together."""
    target = act.target
    if target is not None:
        if not isinstance(target, Path) or target.last != "is_stopping":
            return None
        stops = not isinstance(act.term, Constant) or bool(act.term.value)
        return "the end of the run" if stops else None
    call = act.term
    if act.kind != "call" or not isinstance(call, Call) or names_group(call):
        return None
    return collective(call, trainer)


def _local(test: Term, trace: Trace, models: Sequence[str]) -> str | None:
    """What a condition hangs on that differs between ranks."""
    if not test.origins or test.mentions(*AGREED):
        return None
    for part in _parts(test):
        if isinstance(part, Derived) and part.operator in ORDERS and part.reads(*CLOCKS):
            return "a clock"
        if isinstance(part, Call):
            if _asks_files(part):
                return "the file system"
            if DICE.fullmatch(part.name):
                return "a random number"
    given = (
        trace.parameters[1]
        if trace.name == "post_train_step" and len(trace.parameters) > 1
        else ""
    )
    return _of_batch(test, models, given)


def _asks_files(call: Call) -> bool:
    if call.is_foreign("os", "glob"):
        return call.last in FILES
    return call.last in ("exists", "is_file", "is_dir") and not call.arguments


def _of_batch(test: Term, models: Sequence[str], result: str) -> str | None:
    """What a condition reads of this rank's own batch: a value, not a shape or a key."""
    for part in _parts(test):
        if result and isinstance(part, Path) and part.dotted.startswith(f"{result}."):
            return "the values of this rank's batch"
        if not isinstance(part, (Call, Derived)):
            continue
        if isinstance(part, Derived) and part.operator not in ORDERS:
            continue
        if isinstance(part, Call) and part.last not in VALUES:
            continue
        if any(_is_output(inner, models) for inner in part.walk()) and not part.mentions("shape"):
            return "the loss of this rank's batch"
    return None


def _is_output(term: Term, models: Sequence[str]) -> bool:
    return isinstance(term, Call) and is_at(term.function, models)


def _parts(test: Term) -> Iterator[Term]:
    """What a condition is made of, down to the arguments of calls that only convert."""
    yield test
    inner: tuple[Term, ...] = ()
    if isinstance(test, (Derived, Attribute, Item)):
        inner = test.parts()
    for part in inner:
        yield from _parts(part)
