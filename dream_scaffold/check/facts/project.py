"""A project as read from its source, in frozen records. Every fact is true, false or unknown."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from .behaviour import Behaviour, Script
from .findings import Fault, Match, Note, Place
from .traces import Trace

if TYPE_CHECKING:
    from dream_trainer.contract import Hook

Need = Literal["required", "possible", "unused"]
"""Whether a configuration calls a hook: surely, perhaps, surely not."""


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


class Setting(NamedTuple):
    """One field of a configuration."""

    value: object
    is_known: bool
    place: Place
    """Where it is set; where the configuration is made, for a default of the runtime."""

    is_explicit: bool
    """Whether the project sets it."""


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
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """Dotted name of a field -> what it holds: `training_parameters.n_epochs`."""

    def value(self, name: str) -> object:
        """What a field holds; "unknown" where that is not decided or there is none."""
        setting = self.settings.get(name)
        return setting.value if setting is not None and setting.is_known else "unknown"

    def is_wide(self, *axes: str) -> bool | None:
        """Whether one of the mesh axes has, or may have, more than one rank; None: unknown.

        "auto" counts as more than one.
        """
        degrees = [self.axes.get(axis, "unknown") for axis in axes]
        if any(degree not in (1, "unknown") for degree in degrees):
            return True
        return None if "unknown" in degrees else False


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

    behaviour: Behaviour = field(default_factory=Behaviour)
    """What its methods do."""

    open: str | None = None
    """Why the class may have methods that its source does not show."""

    problems: tuple[HookProblem, ...] = ()
    """Those that hold under every configuration."""

    def is_stub(self, hook: str) -> bool:
        """Whether a method does nothing, or only refuses to, itself or by what it calls."""
        method = self.methods.get(hook)
        if method is None or method.stub:
            return method is not None
        is_plain = method.signature is not None
        return is_plain and any(t.is_empty or t.refuses for t in self.behaviour.named(hook))


@dataclass(frozen=True, kw_only=True)
class Project:
    """Everything that one check knows."""

    trainers: tuple[Trainer, ...]
    hooks: "Mapping[str, Hook]"
    """Every hook of the contract, in the order in which a run first calls them."""

    scripts: tuple[Script, ...] = ()
    """The modules that trainers are made of and launched from."""

    narrowed: bool = False
    """Whether the check was asked about one configuration or one size only."""

    faults: tuple[Fault, ...] = ()
    unused_suppressions: tuple[Match, ...] = ()

    @property
    def traces(self) -> Iterator[Trace]:
        """What the methods of trainers do, and all that stands in the modules they use."""
        for trainer in self.trainers:
            yield from trainer.behaviour.traces.values()
        for script in self.scripts:
            yield from script.traces

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
