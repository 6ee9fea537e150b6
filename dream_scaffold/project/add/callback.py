"""`dream add callback`: a class of its own, where configurations list it, and a test."""

import ast
import builtins
import os
from collections.abc import Iterator
from pathlib import Path

from ...check.facts import Edit
from ...check.fix.displays import appended
from ...check.fix.imports import Import, bound, import_edits, imports_of
from ...check.source import Module, Sources
from ...errors import DreamError
from .added import Added
from .callback_text import module_text, text_of_test
from .calls import config_calls, config_classes, display
from .draft import Draft
from .events import Runtime
from .naming import callback_names
from .trainer import Subject, config_files, factories, on_one_device, read_trainer

USUAL = "post_train_step"


def add_callback(
    draft: Draft, name: str, events: list[str], why: str | None, trainer: str | None
) -> Added:
    """Write the callback and its test, and list it. Raises `DreamError`."""
    cls, stem = callback_names(name)
    runtime = Runtime(draft.project)
    if cls in runtime.classes:
        fact = f"The runtime has a {cls} already."
        remedy = f"Use it: extra_callbacks=[{cls}()], from dream_trainer.callbacks."
        raise DreamError(fact, remedy)
    chosen = runtime.choose(events or [USUAL])
    subject = read_trainer(draft, trainer)
    files = config_files(subject.trainer) or [subject.module.path]
    # Beside the configurations: there it is found as they are.
    folder = os.path.relpath(os.path.dirname(files[0]), draft.project)
    folder = "" if folder.startswith(os.pardir) else folder
    own = os.path.normpath(os.path.join(folder, f"{stem}.py"))
    added = Added(project=draft.project, kind="callback", name=cls)
    if _is_there(draft, own, cls):
        return added
    test = f"tests/test_{stem}.py"
    if os.path.lexists(os.path.join(draft.project, test)):
        raise DreamError(f"{test} exists already.", "Choose another name, or move it away.")
    dotted = _dotted(draft, own)
    texts = (
        module_text(cls, chosen, why, runtime.imports),
        text_of_test(cls, dotted, chosen, _maker(draft, subject), _trainer(draft, subject)),
    )
    for name, text in zip((own, test), texts, strict=True):
        _refuse_two(cls, text, dotted)
        draft.add(name, text)
    added.notes.extend(_list(draft, subject, cls, dotted))
    added.writes.extend(draft.writes())
    return added


def _is_there(draft: Draft, own: str, cls: str) -> bool:
    """Whether the project has the callback. Raises `DreamError` where its place is taken."""
    for place in (own, own.removesuffix(".py")):
        path = os.path.join(draft.project, place)
        if not os.path.lexists(path):
            continue
        module = Sources().load(path) if os.path.isfile(path) else None
        if module is not None and any(
            isinstance(node, ast.ClassDef) and node.name == cls for node in module.tree.body
        ):
            return True
        raise DreamError(
            f"{place} exists already, and has no class {cls}.",
            "Choose another name, or move it away.",
        )
    return False


def _refuse_two(cls: str, text: str, dotted: str) -> None:
    """Raise `DreamError` where a text would know two things by the name of the callback."""
    found = imports_of(ast.parse(text)).get(cls)
    if (found is not None and found.module != dotted) or hasattr(builtins, cls):
        owner = found.module if found is not None else "builtins"
        raise DreamError(f"{owner} has a {cls} as well.", "Choose another name.")


def _list(draft: Draft, subject: Subject, cls: str, dotted: str) -> list[str]:
    """Have every configuration list the callback; what could not be done, and how to do it."""
    left: list[str] = []
    listed = 0
    for path in config_files(subject.trainer):
        module = draft.module(path)
        if cls in bound(module.tree):
            raise DreamError(f"{module.shown} has a {cls} as well.", "Choose another name.")
        edits: list[Edit] = []
        done: set[ast.expr] = set()
        for call in config_calls(module, factories(subject.trainer, module)):
            found = _listed(module, call, cls)
            if found is None:
                place = f"{os.path.relpath(path, draft.project)}:{call.lineno}"
                left.append(f"{place} lists its callbacks elsewhere: add {cls}() there.")
                continue
            listed += 1
            where, text = found
            if where not in done:
                done.add(where)
                edits += appended(module, where, [text])
        if edits:
            draft.edit(edits)
            draft.edit(import_edits(draft.module(path), {cls: Import(dotted, cls)}))
    if not listed and not left:
        left.append(
            "No call makes a configuration in sight of the trainer: where you make one, "
            f"write `from {dotted} import {cls}` and give it extra_callbacks=[{cls}()]."
        )
    return left


def _listed(module: Module, call: ast.Call, cls: str) -> tuple[ast.expr, str] | None:
    """Where a call lists its callbacks, and what is written there; None where that is hidden."""
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    for name in ("extra_callbacks", "callbacks"):
        value = given.get(name)
        if value is None or (isinstance(value, ast.Constant) and value.value is None):
            continue
        where = display(module, value)
        return None if where is None or isinstance(where, ast.Dict) else (where, f"{cls}()")
    fields = list(_defaults(module))
    if fields:
        where = next((node for node in ast.walk(fields[0]) if isinstance(node, ast.List)), None)
        return None if where is None else (where, f"{cls}()")
    if None in given or "extra_callbacks" in given:
        return None
    return call, f"extra_callbacks=[{cls}()]"


def _defaults(module: Module) -> Iterator[ast.expr]:
    """What the classes of configurations list by default."""
    classes = config_classes(module)
    for cls in module.tree.body:
        if isinstance(cls, ast.ClassDef) and cls.name in classes:
            fields = (node for node in cls.body if isinstance(node, ast.AnnAssign))
            for field in fields:
                name = ast.unparse(field.target)
                if name in ("callbacks", "extra_callbacks") and field.value is not None:
                    yield field.value


def _maker(draft: Draft, subject: Subject) -> tuple[str, str] | None:
    """The module and the expression of a configuration, for a test; None: there is none."""
    config = on_one_device(subject.trainer)
    if config is None:
        return None
    module = draft.module(os.path.abspath(config.place.path))
    for factory in factories(subject.trainer, module):
        if factory.name == config.name:
            return _dotted(draft, module.path), f"{factory.name}()"
    names = {name for node in module.tree.body for name in _assigned(node)}
    return (_dotted(draft, module.path), config.name) if config.name in names else None


def _assigned(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.Assign):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _trainer(draft: Draft, subject: Subject) -> tuple[str, str]:
    return _dotted(draft, subject.module.path), subject.trainer.name


def _dotted(draft: Draft, path: str) -> str:
    """A file of the project as it is imported."""
    inside = os.path.relpath(os.path.join(draft.project, path), draft.project)
    return ".".join(Path(inside).with_suffix("").parts).removeprefix("src.")
