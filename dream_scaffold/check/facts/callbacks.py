"""The callbacks of a project, and the state that a trainer or callback holds."""

from collections.abc import Iterator, Sequence

from .behaviour import Kind, Script
from .project import Project
from .terms import Path, Term
from .traces import Trace

EVENTS = ("pre_", "post_", "on_", "train_context", "validation_context")
"""What the names of the methods begin with that the runtime calls."""

PLAIN = frozenset({"Callback", "RankZeroCallback"})


def is_callback(kind: Kind) -> bool:
    """Whether a class is a callback of the runtime."""
    return any(
        base.startswith("dream_trainer.callbacks.") or base.rpartition(".")[2] in PLAIN
        for base in kind.bases
        if "." in base
    )


def on_rank_zero(kind: Kind) -> bool:
    """Whether the runtime calls a callback on rank 0 alone."""
    return kind.derives("RankZeroCallback", "ProgressBar")


def callbacks_of(project: Project) -> Iterator[tuple[Script, Kind]]:
    for script in project.scripts:
        for kind in script.kinds:
            if is_callback(kind):
                yield script, kind


def is_event(name: str) -> bool:
    return name.startswith(EVENTS)


def hooks_of(project: Project) -> Iterator[tuple[Trace, tuple[str, ...]]]:
    """What trainers' methods and callbacks' events do, and the paths of models in them."""
    names = {name for trainer in project.trainers for name in trainer.behaviour.models}
    for trainer in project.trainers:
        own = tuple(model.path for model in trainer.behaviour.models.values())
        for trace in trainer.behaviour.traces.values():
            yield trace, own
    for _, kind in callbacks_of(project):
        for trace in kind.traces.values():
            given = trace.parameters[0] if trace.parameters else "trainer"
            yield trace, tuple(f"{given}.{name}" for name in sorted(names))


def reachable(project: Project) -> Iterator[tuple[Trace, Kind | None, bool]]:
    """Everything that is done, by which class, and whether a run surely comes to it."""
    for trainer in project.trainers:
        yield from ((trace, None, True) for trace in trainer.behaviour.traces.values())
    for script in project.scripts:
        yield script.body, None, True
        yield from ((trace, None, name == "main") for name, trace in script.functions.items())
        for kind in script.kinds:
            reached = is_callback(kind)
            yield from ((trace, kind, reached) for trace in kind.traces.values())


def is_at(term: Term | None, paths: Sequence[str]) -> bool:
    """Whether a term is the object at one of `paths` itself."""
    return term is not None and any(
        isinstance(option, Path) and option.dotted in paths for option in term.options()
    )
