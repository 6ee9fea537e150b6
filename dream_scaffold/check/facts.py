"""What a rule may know: the project as read from its source, in frozen records.

Every fact is true, false or unknown. Nothing here reads a file or evaluates source.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from dream_trainer.contract import Hook

Severity = Literal["error", "warning", "info"]
Need = Literal["required", "possible", "unused"]
"""Whether a configuration calls a hook: surely, perhaps, surely not."""

ORDER: tuple[Severity, ...] = ("error", "warning", "info")


class Place(NamedTuple):
    """A stretch of source. Lines and columns count from 1; the end column is exclusive."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


class Note(NamedTuple):
    """A second place that explains a finding."""

    text: str
    place: Place


class Edit(NamedTuple):
    """Text that takes the place of a stretch of source; an empty stretch is an insertion."""

    place: Place
    text: str


class Fix(NamedTuple):
    """What `--fix` may do about a finding: all of its edits or none."""

    title: str
    """What it does, as an imperative: "Use self.backward(loss)"."""

    edits: tuple[Edit, ...]
    safe: bool = True
    """False: it may change what the program means, and waits for `--unsafe-fixes`."""


class Match(NamedTuple):
    """One hit of a rule, before the runner adds the rule's code and severity."""

    place: Place
    message: str
    help: str = ""
    certain: bool = True
    """A hit that is only possible is reported as an info."""

    config: str | None = None
    notes: tuple[Note, ...] = ()
    fix: Fix | None = None


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What is reported."""

    code: str
    name: str
    severity: Severity
    message: str
    help: str
    place: Place
    configs: tuple[str, ...] = ()
    """The configurations that show it, the first found first; empty if it hangs on none."""

    notes: tuple[Note, ...] = ()
    fix: Fix | None = None

    @property
    def config(self) -> str | None:
        return self.configs[0] if self.configs else None


@dataclass(frozen=True, kw_only=True)
class Signature:
    """How many arguments a method takes, `self` or `cls` left out."""

    text: str
    least: int
    most: int | None
    """None: any number."""

    required_keywords: tuple[str, ...] = ()

    def takes(self, count: int) -> bool:
        """Whether a call with `count` positional arguments fits."""
        fits = self.least <= count and (self.most is None or count <= self.most)
        return fits and not self.required_keywords


@dataclass(frozen=True, kw_only=True)
class Method:
    """What a trainer has under one name, wherever it was inherited from."""

    name: str
    owner: str
    """The class that defines it."""

    place: Place
    inherited: bool
    stub: bool = False
    """Whether its body does nothing, or only raises NotImplementedError."""

    signature: Signature | None = None
    """None: unknown, as behind a decorator."""


@dataclass(frozen=True, kw_only=True)
class HookProblem:
    """What `contract.problems` says of one configuration of a trainer."""

    code: str
    hook: str | None
    match: Match


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One configuration that reaches a trainer, evaluated as far as it is decidable."""

    name: str
    trainer: str
    place: Place
    axes: Mapping[str, object]
    """Mesh axis -> degree: a number, "auto" or "unknown"."""

    features: Mapping[str, object]
    """Field of `DeviceParameters` -> its value, or "unknown"."""

    hooks: Mapping[str, Need]
    reasons: Mapping[str, tuple[Note, ...]] = field(default_factory=dict)
    """Hook -> where the configuration asks for it."""

    problems: tuple[HookProblem, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """A class that derives from `DreamTrainer`, through whatever modules."""

    name: str
    place: Place
    methods: Mapping[str, Method]
    configs: tuple[Configuration, ...]
    hooks: frozenset[str]
    """The hooks that the class has, inherited ones included."""

    mentioned: frozenset[str] = frozenset()
    """Every attribute name that the trainer's own source reads."""

    open: str | None = None
    """Why the class may have methods that its source does not show."""

    problems: tuple[HookProblem, ...] = ()
    """Those that hold under every configuration."""


class Fault(NamedTuple):
    """What the parameter classes themselves refused, by the code of its rule."""

    code: str
    match: Match


@dataclass(frozen=True, kw_only=True)
class Project:
    """Everything that one check knows."""

    trainers: tuple[Trainer, ...]
    hooks: "Mapping[str, Hook]"
    """Every hook of the contract, in the order in which a run first calls them."""

    narrowed: bool = False
    """Whether the check was asked about one configuration or one size only."""

    faults: tuple[Fault, ...] = ()
    unused_suppressions: tuple[Match, ...] = ()

    def refused(self, code: str) -> Iterator[Match]:
        """What the hinge refuses under `code`: bad values, and hooks that are missing."""
        for fault in self.faults:
            if fault.code == code:
                yield fault.match
        for trainer in self.trainers:
            for problem in trainer.problems:
                if problem.code == code:
                    yield problem.match
            for config in trainer.configs:
                for problem in config.problems:
                    if problem.code == code:
                        yield problem.match

    def with_faults(self, faults: Sequence[Fault]) -> "Project":
        return replace(self, faults=self.faults + tuple(faults))

    def with_unused(self, unused: Sequence[Match]) -> "Project":
        return replace(self, unused_suppressions=tuple(unused))


class Rule(Protocol):
    """A rule is a module: its docstring is its manual."""

    __doc__: str | None

    @property
    def CODE(self) -> str: ...

    @property
    def NAME(self) -> str: ...

    @property
    def SEVERITY(self) -> Severity: ...

    @property
    def PASSES(self) -> tuple[str, ...]:
        """Samples that the rule must leave alone."""

    @property
    def MATCHES(self) -> tuple[str, ...]:
        """Samples that the rule must report."""

    def check(self, project: Project) -> Iterator[Match]: ...
