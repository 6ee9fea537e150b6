"""Only some ranks reach a call that needs all of them.

A collective waits until every rank has made it: a barrier, a reduction, `dcp.save`,
`get_model_state_dict`, `full_tensor`, `self.step`. Under `if rank == 0`, after an early return of
the other ranks, in a `RankZeroCallback` or in the handler of an exception that one rank met
alone, the others never come: the run stands still until the time-out, whose message names
another place. Tests on one process pass.

Bad:

    if self.world.is_rank_zero:
        dcp.save(get_model_state_dict(self.model), checkpoint_id=path)

Good:

    dcp.save(get_model_state_dict(self.model), checkpoint_id=path)
    if self.world.is_rank_zero:
        print(f"saved {path}")

How to fix: let every rank make the call, and guard only what one rank does with its result. A
`RankZeroCallback` that needs a collective has to be a `Callback`. See docs/callbacks.md.
"""

from collections.abc import Iterator

from ..facts import (
    Act,
    Constant,
    Display,
    Foreign,
    Guard,
    Match,
    Project,
    Severity,
    Trace,
    Trainer,
    callbacks_of,
    collective,
    guards_of_rank,
    is_at,
    is_event,
    is_of_group,
    may_be_parallel,
    names_group,
    on_rank_zero,
)

CODE = "DT604"
NAME = "lonely-collective"
SEVERITY: Severity = "error"

OF_ONE = frozenset({"OutOfMemoryError", "KeyboardInterrupt", "StopIteration"})
"""Exceptions that one rank meets alone."""

OF_SOME = frozenset({"Exception", "BaseException", "RuntimeError"})
"""Exceptions that one rank may meet alone."""

_IMPORTS = """
    import os

    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch import nn
    from torch.distributed.checkpoint.state_dict import get_model_state_dict
    from torch.distributed.fsdp import fully_shard

    from dream_trainer.callbacks import Callback, RankZeroCallback

    config = DreamTrainerConfig(device_parameters=DeviceParameters.FSDP(compile_model=False))
"""

PASSES = (
    _IMPORTS
    + """
    class MyTrainer(Complete):
        def model_state_dict(self, **_):
            state = get_model_state_dict(self.model)
            if self.world.is_rank_zero:
                print(len(state))
            return {"model": state}
    """,
    _IMPORTS
    + """
    class MyTrainer(Complete):
        def configure_dataloaders(self):
            if self.world.rank == 0:
                box = [list_files()]
                dist.broadcast_object_list(box)
            else:
                box = [None]
                dist.broadcast_object_list(box)
            return make_loader(box), None
    """,
    _IMPORTS
    + """
    def first(rank):
        if rank != 0:
            dist.barrier()
        download()
        if rank == 0:
            dist.barrier()

    class MyTrainer(Complete):
        def configure_dataloaders(self):
            first(self.world.rank)
            return make_loader(), None
    """,
    _IMPORTS
    + """
    class MyTrainer(Complete):
        def validation_step(self, batch, batch_idx):
            value = self.model(batch)
            if self.world.dp_rank == 0:
                dist.all_reduce(value, group=self.tp_group)
            if self.world.rank >= self.world.world_size:
                raise ValueError
            dist.barrier()
            return {"loss": value}
    """,
    _IMPORTS
    + """
    class LoRA(nn.Module):
        def forward(self, x):
            if self.config.rank > 0:
                dist.all_reduce(x)
            return x

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = LoRA()
    """,
    _IMPORTS
    + """
    class Note(RankZeroCallback):
        def post_epoch(self, trainer):
            print(trainer.epoch)
    """,
    _IMPORTS
    + """
    class MyTrainer(Complete):
        def init_weights(self):
            sampler = make_sampler(rank=self.world.dp_rank)
            if sampler is not None:
                dist.barrier()
            try:
                import fast
            except ImportError:
                dist.barrier()
    """,
)

MATCHES = (
    _IMPORTS
    + """
    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            loss = self.model(batch)
            if batch_idx % 100 == 0 and self.world.is_rank_zero:
                self.save()
            return {"loss": loss}

        def save(self):
            dcp.save(get_model_state_dict(self.model), checkpoint_id="runs/x")
    """,
    _IMPORTS
    + """
    class MyTrainer(Complete):
        def init_weights(self):
            if int(os.environ["LOCAL_RANK"]) != 0:
                return
            dist.barrier()
    """,
    _IMPORTS
    + """
    class Save(RankZeroCallback):
        def post_epoch(self, trainer):
            torch.save([p.full_tensor() for p in trainer.model.parameters()], "x.pt")
    """,
    _IMPORTS
    + """
    from torch.distributed import all_reduce as together

    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            rank = dist.get_rank()
            loss = self.model(batch)
            together(loss) if rank == 0 else None
            return {"loss": loss}
    """,
    _IMPORTS
    + """
    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            try:
                loss = self.model(batch)
            except torch.cuda.OutOfMemoryError:
                self.backward(self.zero)
                return {}
            return {"loss": loss}
    """,
    _IMPORTS
    + """
    class MyTrainer(Complete):
        def configure_models(self):
            self.model = nn.Linear(2, 2)

        def apply_fully_shard(self, config):
            fully_shard(self.model, **config)

        def validation_step(self, batch, batch_idx):
            if not self.world.is_rank_zero:
                return {}
            return {"loss": self.model(batch).mean()}
    """,
)


def check(project: Project) -> Iterator[Match]:
    # On one process nobody waits, until the project is scaled.
    severity: Severity | None = None if may_be_parallel(project) else "warning"
    for match in _find(project):
        yield match._replace(severity=severity)


def _find(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        for trace in trainer.behaviour.traces.values():
            yield from _in_trace(trace, "self")
        yield from _forwards(trainer)
    for script in project.scripts:
        for trace in script.traces:
            yield from _in_trace(trace, "trainer")
    for _, kind in callbacks_of(project):
        for name, trace in kind.traces.items():
            alone = on_rank_zero(kind) and is_event(name)
            if not alone and name != "on_interrupt":
                continue
            reason = f"{kind.name} runs on rank 0 alone"
            remedy = "Derive it from Callback, and guard what rank 0 does with the result."
            if not alone:
                reason = "on_interrupt runs where other ranks may be gone"
                remedy = "Do it in on_boundary or post_fit, while every rank is there."
            for act, call in trace.calls():
                shown = collective(call)
                if shown is not None:
                    message = f"{shown} needs every rank, but {reason}: the run hangs or fails."
                    yield Match(act.place, message, remedy, notes=act.notes)


def _in_trace(trace: Trace, trainer: str) -> Iterator[Match]:
    sides: dict[str, set[tuple[int, str]]] = {}
    found: list[tuple[Act, str, Guard]] = []
    for act, call in trace.calls():
        shown = collective(call, trainer) if act.guards else None
        if shown is None or names_group(call):
            continue
        for guard in guards_of_rank(act, trace):
            sides.setdefault(shown, set()).add((id(guard.test), guard.kind))
            if shown.startswith(("dist.", "dcp.")) or not is_of_group(guard.test):
                found.append((act, shown, guard))
        for guard in act.guards:
            if guard.kind == "except" and (sure := _is_of_one(guard)) is not None:
                yield Match(
                    act.place,
                    f"{shown} needs every rank, but one that meets the exception gets here alone.",
                    "Let the exception end the run, or let all ranks agree before they go on.",
                    sure,
                    notes=act.notes,
                )
    told: set[int] = set()
    for act, shown, guard in found:
        # Where both sides make the call, every rank does.
        if len(sides[shown]) == 1 and id(guard.test) not in told:
            told.add(id(guard.test))
            yield _match(act, shown, guard)


def _match(act: Act, shown: str, guard: Guard, config: str | None = None) -> Match:
    test = " ".join(guard.spot.text.split())
    some = guard.kind in ("if", "loop")
    who = f"only ranks with `{test}` get here" if some else f"no rank with `{test}` gets here"
    fact = f"{shown} needs every rank, but {who}"
    return Match(
        act.place,
        f"{fact}: the run hangs or fails.",
        "Let every rank make the call, and guard only what is done with its result.",
        config=config,
        notes=act.notes,
    )


def _is_of_one(guard: Guard) -> bool | None:
    """Whether one rank surely gets into a handler alone; None where all may be expected to."""
    caught = guard.test.items if isinstance(guard.test, Display) else (guard.test,)
    names = {test.last for test in caught if isinstance(test, Foreign)}
    if any(isinstance(test, Constant) for test in caught) or names & OF_SOME:
        return False
    return True if names & OF_ONE else None


def _forwards(trainer: Trainer) -> Iterator[Match]:
    """A forward of a sharded model that only some ranks make."""
    models = tuple(model.path for model in trainer.behaviour.models.values())
    config = next((c for c in trainer.configs if c.hooks["apply_fully_shard"] == "required"), None)
    if config is None or not models:
        return
    for trace in trainer.behaviour.named("training_step", "validation_step"):
        told: set[int] = set()
        for act, call in trace.calls():
            if not act.guards or not is_at(call.function, models):
                continue
            for guard in guards_of_rank(act, trace):
                if not is_of_group(guard.test) and id(guard.test) not in told:
                    told.add(id(guard.test))
                    shown = f"A forward of {call.name}"
                    yield _match(act, shown, guard, config.name)
