"""A configuration among those that `cli(main, {...})` offers as `--config`."""

import ast
import json
import os
from collections.abc import Iterator
from pathlib import Path

from ...check.facts import Edit
from ...check.fix.displays import appended
from ...check.fix.imports import Import, bound, import_edits, imports_of
from ...check.source import Module
from ...errors import DreamError
from .calls import display
from .draft import Draft
from .naming import SUFFIX


def offer(
    draft: Draft, script: str, config: str, choice: str, function: str, known: list[str]
) -> str:
    """Add `function`, of the file `config`, to what the command line chooses from.

    `script` is where the trainer stands; the file that launches it is returned. `known` are the
    configurations that there were before. Raises `DreamError`.
    """
    module, call = _launch(draft, script)
    given = [*call.args[1:2], *(k.value for k in call.keywords if k.arg == "config")]
    value = given[0] if given else None
    owner, mapping = _mapping(draft, module, value)
    if mapping is not None:
        _refuse_twice(owner, mapping, choice)
        name = _name(owner, mapping, config, function, known)
        text = f"{_quoted(owner, mapping, choice)}: {name}"
        draft.edit(appended(owner, mapping, [text]))
    else:
        own = value.func if isinstance(value, ast.Call) and not value.args else value
        name = "" if own is None else ast.unparse(own).rpartition(".")[2]
        if value is None or name not in known:
            raise _unreadable(module, call, choice, function)
        first = name.removesuffix(SUFFIX)
        name = _name(module, value, config, function, known)
        entries = f"{json.dumps(first)}: {ast.unparse(value)}, {json.dumps(choice)}: {name}"
        draft.edit([Edit(module.place(value), f"{{{entries}}}")])
    if name == function and owner.path != config:
        draft.edit(_import(draft, draft.module(owner.path), config, function, known))
    return module.path


def _launch(draft: Draft, script: str) -> tuple[Module, ast.Call]:
    """The call of `cli`, in the trainer's file or another one at the top of the project."""
    others = sorted(os.fspath(path) for path in Path(draft.project).glob("*.py"))
    for path in dict.fromkeys([script, *others]):
        module = draft.module(path) if path == script or _may_launch(path) else None
        for node in ast.walk(module.tree) if module is not None else ():
            if module is not None and isinstance(node, ast.Call) and _is_cli(module, node):
                return module, node
    shown = os.path.relpath(script, draft.project)
    raise DreamError(
        f"{shown} calls no cli(main, {{...}}) that could offer the configuration.",
        "Launch with dream_trainer.utils.cli.cli; nothing was changed.",
    )


def _may_launch(path: str) -> bool:
    with open(path, "rb") as file:
        return b"dream_trainer.utils" in file.read()


def _is_cli(module: Module, node: ast.Call) -> bool:
    imports = imports_of(module.tree)
    name, _, last = ast.unparse(node.func).partition(".")
    found = imports.get(name)
    if found is None or not f"{found.module}.{found.name}".startswith("dream_trainer.utils"):
        return found is not None and ast.unparse(node.func) == "dream_trainer.utils.cli.cli"
    return (last or found.name) == "cli"


def _mapping(
    draft: Draft, module: Module, value: ast.expr | None
) -> tuple[Module, ast.Dict | None]:
    """The mapping of names to configurations and its module, where it is written out."""
    found = display(module, value) if value is not None else None
    if found is None and isinstance(value, ast.Name):
        origin = imports_of(module.tree).get(value.id)
        path = os.path.join(draft.project, *(origin.module if origin else "").split("."))
        if origin is not None and origin.name and os.path.isfile(f"{path}.py"):
            other = draft.module(f"{path}.py")
            listed = display(other, ast.Name(origin.name))
            if isinstance(listed, ast.Dict):
                return other, listed
    return module, found if isinstance(found, ast.Dict) else None


def _refuse_twice(module: Module, mapping: ast.Dict, choice: str) -> None:
    for key in mapping.keys:
        if isinstance(key, ast.Constant) and key.value == choice:
            place = f"{module.shown}:{key.lineno}"
            raise DreamError(f"{place} offers {choice} already.", "Choose another name.")


def _quoted(module: Module, mapping: ast.Dict, choice: str) -> str:
    """The key, in the quotes of its neighbours."""
    keys = (key for key in mapping.keys if isinstance(key, ast.Constant))
    source = next((ast.get_source_segment(module.text, key) or "" for key in keys), "")
    return repr(choice) if source.startswith("'") else json.dumps(choice)


def _name(module: Module, node: ast.expr, config: str, function: str, known: list[str]) -> str:
    """How the functions that stand there already are named: bare, or through their module."""
    if module.path == config:
        return function
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and inner.attr in known:
            return f"{ast.unparse(inner.value)}.{function}"
    return function


def _import(
    draft: Draft, module: Module, config: str, function: str, known: list[str]
) -> Iterator[Edit]:
    """The function beside those that are imported from its file."""
    if function in bound(module.tree):
        raise DreamError(f"{module.shown} has a {function} as well.", "Choose another name.")
    for node in module.tree.body:
        if isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names]
            if names == ["*"] and node.module == Path(config).stem:
                return
            if any(name in known for name in names):
                yield from appended(module, node, [function])
                return
    inside = Path(os.path.relpath(config, draft.project)).with_suffix("")
    dotted = ".".join(inside.parts).removeprefix("src.")
    yield from import_edits(module, {function: Import(dotted, function)})


def _unreadable(module: Module, call: ast.Call, choice: str, function: str) -> DreamError:
    return DreamError(
        f"{module.shown}:{call.lineno} does not show which configurations it offers.",
        f"Write them out, as in cli(main, {{{json.dumps(choice)}: {function}}}).",
    )
