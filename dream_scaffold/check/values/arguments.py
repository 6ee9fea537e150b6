"""What the options of the training script change: `--no-compile`, `--set path.to.field=value`."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import fields
from difflib import get_close_matches
from types import SimpleNamespace
from typing import NamedTuple

from ...errors import DreamError
from ...resources import load_runtime
from ..hinge import configs
from .classes import record_fields
from .domain import Origin, Record, Site
from .parameters import judge

PARTS = {
    "device_parameters": configs.DeviceParameters,
    "training_parameters": configs.TrainingParameters,
    "checkpoint_parameters": configs.CheckpointParameters,
    "logging_parameters": configs.LoggingParameters,
}


class Change(NamedTuple):
    """A field of a configuration, and what it holds from now on."""

    path: tuple[str, ...]
    value: object
    option: str


class ScriptArguments(NamedTuple):
    """What a command line asks of a training script."""

    config: str | None = None
    changes: tuple[Change, ...] = ()


def read_arguments(words: Sequence[str]) -> ScriptArguments:
    """Raises `DreamError` for an option that is not the runtime's, or lacks its value."""
    modifiers = load_runtime("utils.modifiers").MODIFIERS
    config: str | None = None
    chosen: dict[str, object] = {}
    assigned: list[Change] = []
    pending = list(words)
    while pending:
        flag, equals, text = pending.pop(0).partition("=")
        is_switch = flag in modifiers and modifiers[flag].type is bool
        if flag not in modifiers and flag not in ("--config", "--set"):
            near = get_close_matches(flag, [*modifiers, "--config", "--set"], n=1)
            remedy = f"Write {near[0]}." if near else "Leave out what the project itself adds."
            raise DreamError(f"{flag} is no option of the runtime's.", remedy)
        if not is_switch and not equals:
            if not pending:
                raise DreamError(f"{flag} has no value.", f"Write {flag} VALUE.")
            text = pending.pop(0)
        if flag == "--config":
            config = text
        elif flag == "--set":
            assigned.append(_assignment(text))
        else:
            chosen[flag] = is_switch or _converted(flag, text, modifiers[flag].type)
    changed = [
        change
        for flag, modifier in modifiers.items()
        if flag in chosen
        for change in _noted(modifier, chosen[flag])
    ]
    return ScriptArguments(config, (*changed, *assigned))


def _assignment(text: str) -> Change:
    path, equals, value = text.partition("=")
    if not equals:
        raise DreamError(f"--set {text} has no value.", "Write --set path.to.field=value.")
    try:
        parsed = ast.literal_eval({"true": "True", "false": "False"}.get(value.lower(), value))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        parsed = value
    return Change(tuple(path.strip().split(".")), parsed, f"--set {path.strip()}")


def _converted(flag: str, text: str, kind: type) -> object:
    try:
        return kind(text)
    except ValueError:
        fact = f"{flag} {text} is no {kind.__name__}."
        raise DreamError(fact, f"Give {flag} such a value.") from None


class _Unset:
    def __bool__(self) -> bool:
        return False


UNSET = _Unset()


def _noted(modifier: object, value: object) -> Iterator[Change]:
    """What a modifier of the runtime changes, found by letting it change stand-ins."""
    config = SimpleNamespace(callbacks=None, extra_callbacks=[])
    for name, cls in PARTS.items():
        members = {"__dataclass_fields__": vars(cls)["__dataclass_fields__"], "__init__": _take}
        stand_in = type(cls.__name__, (), members)
        setattr(config, name, stand_in(**{item.name: UNSET for item in fields(cls)}))
    modifier.apply(config, value)  # type: ignore[attr-defined]
    for name in PARTS:
        for field, given in vars(getattr(config, name)).items():
            if given is not UNSET:
                yield Change((name, field), given, modifier.flag)  # type: ignore[attr-defined]


def _take(self: object, **given: object) -> None:
    self.__dict__.update(given)


def changed(record: Record, changes: Sequence[Change], site: Site) -> Record:
    """A copy of a configuration with its changes, judged as if it had been written so.

    Raises `DreamError` where it has no such field.
    """
    copy = Record(record.cls, record.site)
    copy.label, copy.key, copy.opened = record.label, record.key, record.opened
    copy.fields, copy.origins = dict(record.fields), dict(record.origins)
    for name in dict.fromkeys(change.path[0] for change in changes):
        found = [change for change in changes if change.path[0] == name]
        _require(record, name, found[0])
        inner = copy.fields.get(name)
        deeper = [change._replace(path=change.path[1:]) for change in found if change.path[1:]]
        if not deeper:
            copy.fields[name] = found[-1].value
            copy.origins[name] = Origin(site, explicit=True)
        elif isinstance(inner, Record):
            copy.fields[name] = changed(inner, deeper, site)
    judge(copy, record.site, {})
    return copy


def _require(record: Record, name: str, change: Change) -> None:
    known = list(record_fields(record.cls))
    if name in known or record.opened is not None:
        return
    shown = record.cls.__name__ if isinstance(record.cls, type) else record.cls.name
    near = get_close_matches(name, known, n=1)
    remedy = f"Write {near[0]}." if near else f"It has: {', '.join(known)}."
    raise DreamError(f"{change.option}: {shown} has no field {name}.", remedy)
