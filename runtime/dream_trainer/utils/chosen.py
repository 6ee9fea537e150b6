"""The configuration that a command line asks for, and how it is shown."""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import typer

from ..configs import BaseTrainerConfig
from .modifiers import MODIFIERS
from .overrides import override

Factory = Callable[[], BaseTrainerConfig]
Choice = BaseTrainerConfig | Factory
FORMS = ("python", "json", "yaml")
Changes = dict[str, str]
"""Path of a field -> the option that changed it."""

INDENT = 4


def resolve(choices: Mapping[str, Choice], options: Mapping[str, Any]) -> BaseTrainerConfig:
    """Make the configuration that `options` name; apply their modifiers, then `--set`."""
    return resolved(choices, options)[0]


def resolved(
    choices: Mapping[str, Choice], options: Mapping[str, Any]
) -> tuple[BaseTrainerConfig, Changes]:
    """The configuration, and what changed which of its fields."""
    name = options.get("config") or next(iter(choices))
    if name not in choices:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(choices)}.")
    choice = choices[name]
    config = choice() if callable(choice) else choice
    changes: Changes = {}
    before = leaves(config)
    for modifier in MODIFIERS.values():
        value = options.get(modifier.name)
        if value is not None and value is not False:  # 0 is a value.
            modifier.apply(config, value)
            before = _note(config, before, modifier.flag, changes)
    for assignment in options.get("set") or ():
        config = override(config, assignment)
        before = _note(config, before, "--set", changes)
    return config, changes


def render(config: BaseTrainerConfig, changes: Changes, form: str, mesh: str) -> str:
    """The configuration in one of `FORMS`; where there can be comments, `mesh` as one."""
    if form == "json":
        return json.dumps(as_data(config) | {"_changed": changes}, indent=2)
    if form == "yaml":
        return f"{as_yaml(as_data(config), changes)}\n# mesh: {mesh}"
    return f"{as_python(config, changes)}\n# mesh: {mesh}"


def _note(config: Any, before: dict[str, str], option: str, changes: Changes) -> dict[str, str]:
    after = leaves(config)
    changes |= {path: option for path, shown in after.items() if before.get(path) != shown}
    return after


def leaves(config: Any, prefix: str = "") -> dict[str, str]:
    """Every field that holds no further configuration: its path, and its value as text."""
    found: dict[str, str] = {}
    for item in fields(config):
        value = getattr(config, item.name)
        if _is_config(value):
            found |= leaves(value, f"{prefix}{item.name}.")
        else:
            found[prefix + item.name] = shown(value)
    return found


def as_python(config: Any, changes: Changes, depth: int = 1, prefix: str = "") -> str:
    """The call that makes `config`; a comment marks what an option changed."""
    pad = " " * INDENT * depth
    lines = [f"{type(config).__name__}("]
    for item in fields(config):
        value, path = getattr(config, item.name), prefix + item.name
        if _is_config(value):
            inner = as_python(value, changes, depth + 1, f"{path}.")
            lines.append(f"{pad}{item.name}={inner},")
        else:
            mark = f"  # {changes[path]}" if path in changes else ""
            lines.append(f"{pad}{item.name}={shown(value)},{mark}")
    return "\n".join([*lines, " " * INDENT * (depth - 1) + ")"])


def as_data(value: Any) -> Any:
    """`value` as JSON has it; what JSON has no word for, as Python writes it."""
    if _is_config(value):
        return {item.name: as_data(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, (list, tuple)):
        return [as_data(item) for item in value]
    if isinstance(value, dict):
        return {str(key): as_data(item) for key, item in value.items()}
    plain = value is None or isinstance(value, (bool, int, str))
    finite = isinstance(value, float) and abs(value) != float("inf") and value == value
    return value if plain or finite else shown(value)


def as_yaml(data: Any, changes: Changes, prefix: str = "") -> str:
    """Nested `field: value` lines; scalars and lists as JSON writes them, which YAML reads."""
    lines = []
    for name, value in data.items():
        path, pad = prefix + name, "  " * prefix.count(".")
        if isinstance(value, dict) and value:
            lines += [f"{pad}{name}:", as_yaml(value, changes, f"{path}.")]
        else:
            mark = f"  # {changes[path]}" if path in changes else ""
            lines.append(f"{pad}{name}: {json.dumps(value)}{mark}")
    return "\n".join(lines)


def shown(value: Any) -> str:
    """A value as Python writes it; an object without such a form, as a call without arguments."""
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        inner = ", ".join(map(shown, value))
        if isinstance(value, list):
            return f"[{inner}]"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if value in (float("inf"), float("-inf")):
        return f'float("{value}")'
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    kind: Any = type(value)
    return repr(value) if kind.__repr__ is not object.__repr__ else f"{kind.__name__}()"


def _is_config(value: Any) -> bool:
    return is_dataclass(value) and not isinstance(value, type)
