"""`dream add hook`: a hook of the contract, at its place among the others."""

import ast
import os
from collections.abc import Iterator
from functools import cache

from ... import resources
from ...check.facts import Fix, Trainer
from ...check.fix.hooks import missing_hook, written_hook
from ...check.fix.imports import Import, imports_of
from ...check.hinge import configs, contract
from ...check.source import Sources
from ...errors import DreamError
from ..choices import check_choice
from ..options import Options
from .added import Added
from .draft import Draft
from .example import Example, render_example, signature_of, with_hook
from .trainer import Subject, read_trainer


def add_hook(draft: Draft, options: Options, name: str, trainer: str | None) -> Added:
    """Write the hook called `name` into the trainer. Raises `DreamError`."""
    check_choice("The hook", name, list(contract.BY_NAME))
    subject = read_trainer(draft, trainer)
    added = Added(project=draft.project, kind="hook", name=name)
    if name in subject.trainer.hooks:
        return added
    fitting = with_hook(options, name)
    example = render_example(fitting) if fitting is not None else None
    write_hook(draft, subject, name, example)
    after = read_trainer(draft, subject.trainer.name).trainer
    added.notes.extend(_called(after, name))
    added.notes.extend(_owed(after, name))
    added.writes.extend(draft.writes())
    return added


def write_hook(draft: Draft, subject: Subject, name: str, example: Example | None) -> None:
    """The first text of the hook that brings no finding with it; the last one there is."""
    known = _findings(draft)
    start = dict(draft.after)
    for fix in _texts(draft, subject, name, example):
        draft.after = dict(start)
        draft.edit(fix.edits)
        if _findings(draft) <= known:
            return
    if draft.after == start:
        fact = f"{subject.trainer.name} leaves no room for {name}."
        raise DreamError(fact, "Write its body on lines of its own, and run it again.")


def _texts(draft: Draft, subject: Subject, name: str, example: Example | None) -> Iterator[Fix]:
    """The recipe's own text, where it fits; then what fits any trainer."""
    module, node, trainer = subject.module, subject.node, subject.trainer
    written: list[Fix | None] = []
    body = example.method(name) if example is not None else None
    if example is not None and body and example.fits(body, trainer, draft.project):
        offered = imports_of(example.train.tree)
        written.append(written_hook(module, node, name, body, offered))
    if contract.BY_NAME[name].needed == "optional":
        default, offered = _default(name)
        written.append(written_hook(module, node, name, default, offered))
    else:
        written.append(missing_hook(module, node, name, trainer))
    yield from (fix for fix in written if fix is not None)


def _findings(draft: Draft) -> set[tuple[str, str]]:
    """The faults of the project as it shall be, missing hooks aside."""
    return {
        (found.code, found.message)
        for found in draft.check().findings
        if found.severity != "info" and found.code not in ("DT201", "DT202", "DT206")
    }


@cache
def _default(name: str) -> tuple[str, dict[str, Import]]:
    """A hook that does what the runtime does without it, and the imports of its signature."""
    path = os.path.join(resources.runtime_folder(), "trainer", "abstract.py")
    module = Sources().load(path)
    nodes = ast.walk(module.tree) if module is not None else iter(())
    for node in nodes:
        if module is not None and isinstance(node, ast.FunctionDef) and node.name == name:
            head = signature_of(module, node)
            meaning = (ast.get_docstring(node) or "").partition("\n")[0]
            owed = any(isinstance(inner, ast.Raise) for inner in node.body)
            call = _forwarded(node)
            body = f'raise NotImplementedError("{meaning}")' if owed else f"return {call}"
            if not owed and isinstance(node.returns, ast.Constant):
                body = call
            return f"{head}\n    # {meaning}\n    {body}", imports_of(module.tree)
    raise DreamError(f"The runtime has no hook {name}.", "Install dream-scaffold again.")


def _forwarded(node: ast.FunctionDef) -> str:
    """The call of the same method of the base class."""
    given = [item.arg for item in node.args.args[1:]]
    given += [f"**{node.args.kwarg.arg}"] if node.args.kwarg else []
    return f"super().{node.name}({', '.join(given)})"


def _called(trainer: Trainer, name: str) -> Iterator[str]:
    """Which configurations call the hook, or what makes one call it."""
    hook = contract.BY_NAME[name]
    if isinstance(hook.needed, str):
        yield f"Every run calls {hook.call}."
        return
    callers = [c.name for c in trainer.configs if c.hooks.get(name) != "unused"]
    if callers:
        yield f"{hook.call} is called by {' and '.join(callers)}."
        return
    ways = " or ".join(_setting(needed) for needed in hook.needed)
    yield f"No configuration calls {hook.call} yet. In DeviceParameters, set {ways}."


def _setting(name: str) -> str:
    return f"{name} above 1" if name in configs.AXES.values() else f"{name}=True"


def _owed(trainer: Trainer, name: str) -> Iterator[str]:
    method = trainer.methods.get(name)
    if method is not None and method.stub:
        yield f"Its body is yours to write: {contract.BY_NAME[name].purpose}."
