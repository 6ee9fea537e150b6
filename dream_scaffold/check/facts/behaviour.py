"""What a trainer and the modules around it do."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from .findings import Place
from .terms import Call, Term
from .traces import Act, Trace


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A class of the project."""

    name: str
    place: Place
    bases: tuple[str, ...]
    """Every class that it derives from: names of the project, dotted names from outside."""

    methods: frozenset[str]
    """What it has under any name, inherited from the project's classes included."""

    mentioned: frozenset[str]
    """Every name and attribute that its source mentions, that of the project's bases included."""

    is_open: bool = False
    """Whether a base is unknown."""

    traces: Mapping[str, Trace] = field(default_factory=dict)
    """What its methods do; `self` is their object. Of the classes of a `Script` only."""

    def derives(self, *names: str) -> bool:
        """Whether a base has one of these last names: `Module`, `IterableDataset`."""
        return any(base.rpartition(".")[2] in names for base in self.bases)

    @property
    def is_module(self) -> bool:
        """Whether it is known to be a torch module."""
        return any(
            base.startswith("torch.nn.")
            or base.rpartition(".")[2] in ("Module", "PreTrainedModel")
            for base in self.bases
        )


@dataclass(frozen=True, kw_only=True)
class Model:
    """An attribute that `configure_models` assigns and that is, or may be, a module."""

    name: str
    term: Term
    act: Act
    """The assignment."""

    kind: Kind | None
    """Its class, where the project defines it."""

    certain: bool
    """Whether it is known to be a module."""

    trained: bool | None
    """Whether `configure_optimizers` uses it; None: unknown."""

    @property
    def path(self) -> str:
        return f"self.{self.name}"


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """What the methods of a trainer do, hooks first, in the order of a run."""

    traces: Mapping[str, Trace] = field(default_factory=dict)
    attributes: Mapping[str, Term] = field(default_factory=dict)
    """Path -> what was assigned to it: `self.optimizer`, `self.model.layers.*.attention`."""

    kinds: Mapping[str, Kind] = field(default_factory=dict)
    """Path -> the project's class of the object there."""

    models: Mapping[str, Model] = field(default_factory=dict)
    forwards: Mapping[str, Trace] = field(default_factory=dict)
    """Path of a module -> what its `forward` does; of every class once."""

    def named(self, *names: str) -> Iterator[Trace]:
        """The traces of these methods, where the trainer has them."""
        return (self.traces[name] for name in names if name in self.traces)

    @property
    def is_followed(self) -> bool:
        """Whether the source was there to be followed."""
        return bool(self.traces)

    @cached_property
    def below(self) -> Mapping[str, frozenset[str]]:
        """Path -> the names of what is assigned directly below it."""
        found: dict[str, set[str]] = {}
        for path in self.attributes:
            owner, _, name = path.rpartition(".")
            found.setdefault(owner, set()).add(name)
        return {owner: frozenset(names) for owner, names in found.items()}

    @cached_property
    def tree(self) -> dict[str, frozenset[str] | None]:
        """What `children` of `modules` has worked out."""
        return {}

    def definition(self, term: Term) -> Term:
        """What was assigned to a path; the term itself where it is no known path."""
        from .terms import Path

        for _ in range(8):
            if not isinstance(term, Path) or term.dotted not in self.attributes:
                break
            term = self.attributes[term.dotted]
        return term

    def made_by(self, term: Term) -> Call | None:
        """The call that made what stands at a path or is given as a term."""
        found = self.definition(term)
        return found if isinstance(found, Call) else None


@dataclass(frozen=True, kw_only=True)
class Script:
    """A module of the project that a trainer uses or is launched from."""

    path: str
    body: Trace
    """Its top level."""

    functions: Mapping[str, Trace]
    kinds: tuple[Kind, ...]
    """Its classes, trainers left out."""

    @property
    def traces(self) -> Iterator[Trace]:
        yield self.body
        yield from self.functions.values()
        for kind in self.kinds:
            yield from kind.traces.values()
