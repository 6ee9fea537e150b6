"""One configuration of a trainer: its axes, which hooks it calls, what it makes impossible."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from .facts import Configuration, Fault, HookProblem, Match, Need, Note, Place
from .hinge import configs, contract
from .values.classes import parameter_class
from .values.domain import Flaw, Record, Unknown, Value
from .values.parameters import instances, unknown_fields

FEATURES = tuple(
    item.name for item in fields(configs.DeviceParameters) if item.type in (bool, bool | None)
)
"""The switches of `DeviceParameters`."""


MOST_UNDECIDED = 4
"""Undecided fields of one configuration that are told one by one."""


class Size(NamedTuple):
    """How many processes a run has, in all and on one node."""

    processes: int
    per_node: int | None


class Layout(NamedTuple):
    """What one configuration may turn out to be at run time."""

    parameters: configs.DeviceParameters
    degrees: Mapping[str, configs.device.Degree]
    record: Record


@dataclass
class Candidate:
    """A configuration before it is evaluated: its value on every path that leads to it."""

    name: str
    place: Place
    values: list[Value]
    launched: bool = False
    is_default: bool = False
    """Launched unless `--config` chooses another."""

    meant: bool = True
    """Whether a given number of processes is meant for it."""

    layouts: list[Layout] = field(default_factory=list)
    open: Unknown | None = None
    """Why it may also be something else than its layouts."""

    faults: list[Fault] = field(default_factory=list)


def evaluate(candidate: Candidate, size: Size | None) -> None:
    """Work out every layout that a configuration may have, and what refuses it."""
    found: list[tuple[configs.DeviceParameters, Record]] = []
    for value in candidate.values:
        device = value.fields.get("device_parameters") if isinstance(value, Record) else value
        if isinstance(device, Record) and _is_device(device):
            if device.opened is not None:
                candidate.open = device.opened
            found += [(parameters, device) for parameters in instances(device)]
        elif isinstance(device, Unknown):
            candidate.open = device
        else:
            candidate.open = Unknown("has no device_parameters")
    refusals: list[configs.ConfigError] = []
    for parameters, device in found:
        degrees: Mapping[str, configs.device.Degree] = parameters.degrees
        if size is not None:
            try:
                axes = configs.resolve_axes(parameters, size.processes, size.per_node)
                degrees = axes.sizes
            except configs.ConfigError as error:
                refusals.append(error)
        candidate.layouts.append(Layout(parameters, degrees, device))
    if refusals:
        _refuse_size(candidate, refusals)
    candidate.faults += _flaws(candidate)


def _is_device(record: Record) -> bool:
    found = parameter_class(record.cls)
    return found is not None and issubclass(found, configs.DeviceParameters)


def _refuse_size(candidate: Candidate, refusals: list[configs.ConfigError]) -> None:
    error = refusals[0]
    everywhere = len(refusals) == len(candidate.layouts) and candidate.open is None
    certain = everywhere and candidate.meant
    place = candidate.layouts[0].record.site.place
    match = Match(place, error.fact, error.remedy, certain, candidate.name)
    candidate.faults.append(Fault(error.code, match))


def _flaws(candidate: Candidate) -> Iterator[Fault]:
    """What the parameter classes refuse: surely, if they do on every path."""
    by_path = [list(_flaws_of(value, set())) for value in candidate.values]
    counted: dict[tuple[str, str, Place], list[Flaw]] = {}
    for flaws in by_path:
        for key, flaw in {(f.code, f.fact, f.site.place): f for f in flaws}.items():
            counted.setdefault(key, []).append(flaw)
    for (code, fact, place), flaws in counted.items():
        certain = len(flaws) == len(by_path)
        yield Fault(code, Match(place, fact, flaws[0].remedy, certain, candidate.name))


def _flaws_of(value: Value, seen: set[int]) -> Iterator[Flaw]:
    if isinstance(value, Record) and id(value) not in seen:
        seen.add(id(value))
        yield from value.flaws
        for inner in value.fields.values():
            yield from _flaws_of(inner, seen)


def describe(
    candidate: Candidate, trainer: str, place: Place, defined: frozenset[str], opened: str | None
) -> Configuration:
    """The facts of a configuration, held against the hooks that `trainer` defines."""
    return Configuration(
        name=candidate.name,
        trainer=trainer,
        place=candidate.place,
        axes=_agreed(
            candidate, [dict(layout.degrees) for layout in candidate.layouts], tuple(configs.AXES)
        ),
        features=_agreed(
            candidate, [vars(layout.parameters) for layout in candidate.layouts], FEATURES
        ),
        hooks={
            hook.name: need
            for hook in contract.HOOKS
            if (need := _need(hook, candidate)) is not None
        },
        reasons={
            hook.name: _reasons(hook, candidate)
            for hook in contract.HOOKS
            if isinstance(hook.needed, tuple)
        },
        problems=tuple(_problems(candidate, trainer, place, defined, opened)),
    )


def _agreed(
    candidate: Candidate, layouts: list[dict[str, object]], names: tuple[str, ...]
) -> dict[str, object]:
    """What all layouts have in common; the rest is "unknown"."""
    agreed: dict[str, object] = {}
    for name in names:
        values = [layout[name] for layout in layouts]
        known = values and candidate.open is None and all(v == values[0] for v in values)
        agreed[name] = values[0] if known else "unknown"
    return agreed


def _need(hook: contract.Hook, candidate: Candidate) -> Need | None:
    if isinstance(hook.needed, str):
        return "required" if hook.needed == "always" else None
    called = [
        bool(contract.callers(hook, layout.parameters, layout.degrees))
        for layout in candidate.layouts
    ]
    if called and all(called) and candidate.open is None:
        return "required"
    return "possible" if any(called) or candidate.open or not called else "unused"


def _reasons(hook: contract.Hook, candidate: Candidate) -> tuple[Note, ...]:
    for layout in candidate.layouts:
        names = contract.callers(hook, layout.parameters, layout.degrees)
        if names:
            return _notes(candidate, layout, names)
    return ()


def _notes(candidate: Candidate, layout: Layout, names: list[str]) -> tuple[Note, ...]:
    """Where the configuration gives `names` the values that they have."""
    notes = []
    undecided_names = {name for name, _ in unknown_fields(layout.record)}
    for name in names:
        origin = layout.record.origins.get(name)
        if origin is None:
            continue
        setting = layout.parameters.setting(name)
        text = f"{candidate.name} sets {setting}"
        if name in undecided_names:
            text = f"{candidate.name} does not decide {name}"
        elif not origin.explicit:
            text = f"{candidate.name} leaves {setting}, the default"
        notes.append(Note(text, origin.site.place))
    return tuple(notes)


def _problems(
    candidate: Candidate, trainer: str, place: Place, defined: frozenset[str], opened: str | None
) -> Iterator[HookProblem]:
    """What `contract.problems` says, surely if it says so of every layout."""
    found: dict[tuple[str, str], list[tuple[contract.Problem, Layout]]] = {}
    for layout in candidate.layouts:
        for problem in contract.problems(layout.parameters, layout.degrees, defined, trainer):
            if problem.code != "DT206":
                key = (problem.code, problem.hook or problem.fact)
                found.setdefault(key, []).append((problem, layout))
    for hits in found.values():
        problem, layout = hits[0]
        hook = problem.hook
        names = [
            name
            for name in (*configs.AXES.values(), *FEATURES)
            if _mentions(problem.fact, layout.parameters.setting(name))
        ]
        notes = _notes(candidate, layout, names)
        certain = len(hits) == len(candidate.layouts) and candidate.open is None
        if not certain and len(list(unknown_fields(layout.record))) > MOST_UNDECIDED:
            continue  # Of parameters that are open altogether, anything might be said.
        message = problem.fact if certain else _perhaps(problem.fact, candidate, layout, names)
        if certain and hook is not None and opened is not None:
            certain = False
            message = f"{problem.fact} It may still come from elsewhere: {opened}."
        where = notes[0].place if hook is None and notes else place
        match = Match(where, message, problem.remedy, certain, candidate.name, notes)
        yield HookProblem(code=problem.code, hook=hook, match=match)


def _mentions(fact: str, setting: str) -> bool:
    return f" {setting} " in f" {fact} "


def _perhaps(fact: str, candidate: Candidate, layout: Layout, names: list[str]) -> str:
    unknown = dict(unknown_fields(layout.record))
    why = next((unknown[name] for name in names if name in unknown), candidate.open)
    reason = "it hangs on a branch" if why is None else why.text
    return f"{fact} Whether it comes to that is not decided: {reason}."


def undecided(candidate: Candidate) -> Iterator[Match]:
    """What of a configuration could not be decided, and why; each reason once."""
    reasons: dict[Unknown, list[str]] = {}
    if candidate.open is not None and not candidate.layouts:
        reasons[candidate.open] = ["device_parameters"]
    for record in {id(layout.record): layout.record for layout in candidate.layouts}.values():
        for name, why in unknown_fields(record):
            reasons.setdefault(why, []).append(name)
    for why, names in reasons.items():
        yield _unknown(names, why, candidate)


def _unknown(names: list[str], why: Unknown, candidate: Candidate) -> Match:
    place = candidate.place if why.site is None else why.site.place
    few = " and ".join(names) if len(names) <= MOST_UNDECIDED else f"{len(names)} fields"
    verb = "is" if len(names) == 1 else "are"
    message = f"{few} of {candidate.name} {verb} not decided: {why.text}."
    return Match(place, message, config=candidate.name)
