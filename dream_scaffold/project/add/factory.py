"""`dream add config`: a function that makes a configuration, a choice of `--config`, its hooks."""

import ast
import os
import re
from collections import Counter

from ...check.facts import Edit, Place
from ...check.fix.imports import bound, import_edits, imports_of, needed
from ...check.hinge import contract
from ...check.source import Module
from ...errors import DreamError
from ..options import Options
from .added import Added
from .calls import config_calls, config_classes
from .choice import offer
from .draft import Draft
from .example import Example, render_example, text_of
from .hook import write_hook
from .naming import config_names
from .trainer import Subject, config_files, factories, read_trainer


def add_config(draft: Draft, options: Options, name: str, trainer: str | None) -> Added:
    """Write a configuration for the mode of `options`, and what it needs. Raises `DreamError`."""
    choice, function = config_names(name)
    subject = read_trainer(draft, trainer)
    path = _file(draft, subject)
    module = draft.module(path)
    added = Added(project=draft.project, kind="config", name=function)
    if function in bound(module.tree):
        return added
    example = render_example(options)
    known = [made.name for made in subject.trainer.configs]
    _write(draft, subject, module, example, options, function)
    script = offer(draft, subject.module.path, path, choice, function, known)
    _write_hooks(draft, subject.trainer.name, options, example, function, added)
    ranks = options.mode.ranks
    start = f"torchrun --nproc-per-node={ranks}" if ranks > 1 else "python"
    shown = os.path.relpath(script, draft.project)
    added.notes.append(f"Run it: {start} {shown} --config {choice}")
    added.writes.extend(draft.writes())
    return added


def _file(draft: Draft, subject: Subject) -> str:
    """Where configurations stand. Raises `DreamError` where there is no such file."""
    files = config_files(subject.trainer)
    path = files[0] if files else os.path.join(draft.project, "config.py")
    if not os.path.isfile(path):
        raise DreamError(
            "There is no config.py, and no configuration reaches the trainer.",
            "Take the file from git, or write a first configuration.",
        )
    return path


def _write(
    draft: Draft,
    subject: Subject,
    module: Module,
    example: Example,
    options: Options,
    function: str,
) -> None:
    """The function of the template, under its own name, among those that there are."""
    own = factories(subject.trainer, module)
    sample = example.modules["config.py"]
    called = "_".join(options.mode.parts) + "_config"
    [node] = [n for n in sample.tree.body if isinstance(n, ast.FunctionDef) and n.name == called]
    text = text_of(sample, node).replace(f"def {called}(", f"def {function}(", 1)
    text = re.sub(r"\bConfig\b", _class(module, own), text)
    text = "\n".join(line and indented(line, module) for line in text.split("\n"))
    line = _line(module, own)
    column = len(module.lines[line - 1]) + 1
    edit = Edit(Place(module.shown, line, column, line, column), f"\n\n\n{text}")
    offered = needed(text, imports_of(sample.tree))
    draft.edit([edit, *import_edits(module, offered)])


def _line(module: Module, own: list[ast.FunctionDef]) -> int:
    """The line behind which a function is written.

    That of one device stays the last, as in the template: an update finds the others in place.
    """
    if not own:
        return len("\n".join(module.lines).rstrip().split("\n"))
    before = module.tree.body[: module.tree.body.index(own[-1])]
    last = before[-1] if before and own[-1].name == "single_config" else own[-1]
    return last.end_lineno or last.lineno


def indented(line: str, module: Module) -> str:
    """A line indented as a module is: by its first step, which may be a tab."""
    step = next((text for text in module.lines if text[:1] in (" ", "\t")), "    ")
    step = step[: len(step) - len(step.lstrip())]
    text = line.lstrip(" ")
    depth = (len(line) - len(text)) // 4
    return step * depth + text


def _class(module: Module, own: list[ast.FunctionDef]) -> str:
    """The class of the configurations: the one that is made most often, else the last written."""
    made = Counter(ast.unparse(call.func) for call in config_calls(module, own))
    classes = [name for name, _ in made.most_common(1)] or config_classes(module)[-1:]
    if not classes:
        raise DreamError(
            f"{module.shown} has no class of configurations.",
            "Derive one from DreamTrainerConfig there.",
        )
    return classes[0]


def _write_hooks(
    draft: Draft, trainer: str, options: Options, example: Example, function: str, added: Added
) -> None:
    """The hooks that the new configuration calls and the trainer lacks, in their order."""
    for name in options.hooks:
        subject = read_trainer(draft, trainer)
        if name not in subject.trainer.hooks:
            write_hook(draft, subject, name, example)
            method = read_trainer(draft, trainer).trainer.methods.get(name)
            purpose = contract.BY_NAME[name].purpose
            owed = method is not None and method.stub
            more = f"; its body is yours to write: {purpose}" if owed else ""
            added.notes.append(f"{function} calls {name}, which is written as well{more}.")
