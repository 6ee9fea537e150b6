"""`--set path.to.field=value`: any field of a configuration, typed by its dataclass."""

import ast
import types
from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import torch

from ..callbacks import Callback
from ..configs import ConfigError

C = TypeVar("C")


def override(config: C, assignment: str) -> C:
    """A copy of `config` with one field changed, validated as if it had been written so.

    Raises `ConfigError` for a path that leads nowhere and for a value of another type.
    """
    path, equals, text = assignment.partition("=")
    if not equals:
        raise ConfigError(
            "DT107", f"--set {assignment} has no value.", "Write --set path.to.field=value."
        )
    changed: C = _replace(config, path.strip().split("."), text.strip(), path.strip())
    return changed


def _replace(owner: Any, names: list[str], text: str, path: str) -> Any:
    name, *rest = names
    known = [field.name for field in fields(owner) if field.init] if is_dataclass(owner) else []
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"It has: {', '.join(known) or 'none'}."
        raise ConfigError(
            "DT107", f"--set {path}: {type(owner).__name__} has no field {name!r}.", hint
        )
    if rest:
        value = _replace(getattr(owner, name), rest, text, path)
    else:
        space = {"torch": torch, "Callback": Callback}
        value = _parse(text, get_type_hints(type(owner), localns=space)[name], path)
    return replace(owner, **{name: value})


def _parse(text: str, hint: Any, path: str) -> Any:
    """`text` as a value of type `hint`: a Python literal or, where text is allowed, itself."""
    try:
        value = ast.literal_eval({"true": "True", "false": "False"}.get(text.lower(), text))
    except (ValueError, SyntaxError):
        value = text
    for candidate in (value, text):
        fits, converted = _fit(candidate, hint)
        if fits:
            return converted
    shown = str(hint).replace("typing.", "") if get_origin(hint) else hint.__name__
    raise ConfigError(
        "DT107", f"--set {path}={text} is not of type {shown}.", "Give such a value."
    )


def _fit(value: Any, hint: Any) -> tuple[bool, Any]:
    """Whether `value` is of type `hint`, and the value as that type has it."""
    origin, members = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return next((found for kind in members if (found := _fit(value, kind))[0]), (False, None))
    if origin is Literal:
        return value in members, value
    if origin in (tuple, list) and isinstance(value, (tuple, list)):
        kinds = [kind for kind in members if kind is not ...]
        same = len(kinds) == 1 or len(kinds) == len(value)
        items = [_fit(item, kinds[0 if len(kinds) == 1 else i]) for i, item in enumerate(value)]
        return same and all(fits for fits, _ in items), origin(item for _, item in items)
    if hint is float and isinstance(value, (int, str)) and not isinstance(value, bool):
        try:
            return True, float(value)
        except ValueError:
            return False, None
    kind = types.NoneType if hint is None else origin or hint
    if isinstance(value, (bool, str)) and kind is not type(value):
        return False, None  # No int or sequence is meant.
    return isinstance(kind, type) and isinstance(value, kind), value
