"""The loaders that `configure_dataloaders` returns, and what they are made of."""

import sys
from collections.abc import Iterator
from typing import NamedTuple

from .behaviour import Kind
from .project import Configuration, Project, Trainer
from .terms import Call, Code, Constant, Display, Foreign, Path, Term

DATA_AXES = ("dp_replicate", "dp_shard")
SAMPLERS = ("DistributedSampler",)
LOADERS = ("DataLoader", "StatefulDataLoader")
KNOWN = frozenset({"torch", "torchdata", "builtins", "numpy", "sklearn"}) | sys.stdlib_module_names
"""Packages that split no data by themselves."""

OF_DATA_RANK = ("dp_rank", "dp_size", "dp_world_size", "data_rank")


class Loader(NamedTuple):
    """One of the two loaders."""

    term: Term
    is_training: bool

    @property
    def samplers(self) -> Iterator[Call]:
        return self.term.calls(*SAMPLERS)

    @property
    def torch_loaders(self) -> Iterator[Call]:
        """The loaders of torch or torchdata that it is, or is made of."""
        return (call for call in self.term.calls(*LOADERS) if call.is_foreign(*KNOWN))


def loaders(trainer: Trainer) -> Iterator[Loader]:
    """The training loaders, then the validation loaders, of every return."""
    trace = trainer.behaviour.traces.get("configure_dataloaders")
    pairs = [
        option
        for act in (trace.returns if trace is not None else ())
        for option in act.term.options()
        if isinstance(option, Display) and option.kind in ("tuple", "list")
    ]
    for index in (0, 1):
        for pair in pairs:
            if len(pair.items) == 2:
                for term in pair.items[index].options():
                    found = trainer.behaviour.definition(term)
                    yield Loader(found, index == 0)


def classes(term: Term, project: Project) -> Iterator[tuple[Call, Kind | None]]:
    """The project's own classes that a term is made of."""
    kinds = {kind.name: kind for script in project.scripts for kind in script.kinds}
    for call in term.calls():
        if isinstance(call.function, Code) and call.function.kind == "class":
            yield call, kinds.get(call.function.name)


def is_shown(term: Term) -> bool:
    """Whether the source shows everything that a loader is made of."""
    if term.is_hidden:
        return False
    for part in term.walk():
        if isinstance(part, Foreign) and part.name.partition(".")[0] not in KNOWN:
            return False
        if isinstance(part, Path) and part.dotted in ("self", "self.world", "self.device_mesh"):
            return False
        if isinstance(part, Call) and (part.is_open or part.name == ""):
            return False
    return True


def reads_data_rank(term: Term) -> bool:
    """Whether a data-parallel rank or size goes into it."""
    return term.mentions(*OF_DATA_RANK)


def splits(trainer: Trainer) -> Iterator[Configuration]:
    """The configurations under which ranks read different data."""
    return (config for config in trainer.configs if config.is_wide(*DATA_AXES))


def constant(term: Term | None) -> object:
    """The plain value of an argument; None where it is not written or not known."""
    return term.value if isinstance(term, Constant) else None
