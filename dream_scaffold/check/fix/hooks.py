"""A missing hook as text: the template's own body, at its place among the others."""

import ast
import re
from collections.abc import Mapping
from textwrap import dedent, indent

from ...resources import templates
from ..facts import Edit, Fix, Place, Trainer
from ..hinge import contract
from ..source import Module
from .imports import Import, import_edits, needed

IMPORT = re.compile(r"^from (?P<module>[\w.]+) import (?P<names>[\w, ]+)$", re.M)
USUAL = {"Any": "typing", "Tensor": "torch", "nn": "torch"}
"""What bodies name beside the imports of the template."""


def missing_hook(module: Module, cls: ast.ClassDef, hook: str, trainer: Trainer) -> Fix | None:
    """The edits that write a hook into a class; None where the class leaves no room for them."""
    return written_hook(module, cls, hook, _body(hook, trainer), _offered())


def written_hook(
    module: Module, cls: ast.ClassDef, hook: str, body: str, offered: Mapping[str, Import]
) -> Fix | None:
    """The same for a hook whose text is known; its imports are taken from those on offer."""
    place = _place(module, cls, hook)
    if place is None:
        return None
    where, before, after = place
    text = before + indent(body, _indent(module, cls)) + after
    edits = [Edit(where, text), *import_edits(module, needed(body, offered))]
    return Fix(f"Write {hook}", tuple(edits))


def _body(hook: str, trainer: Trainer) -> str:
    """The hook as the template writes it, or one that says what is owed."""
    path = templates() / "hooks" / f"{hook}.jinja"
    models = list(trainer.behaviour.models)
    one = models[0] if len(models) == 1 else None
    text = dedent(path.read_text(encoding="utf-8")).rstrip() if path.is_file() else ""
    fits = one is not None and "{%" not in text and "{{" not in text
    if ".layers" in text:
        fits = fits and f"self.{one}.layers" in trainer.behaviour.attributes
    if text and fits:
        return text.replace("self.model", f"self.{one}")
    found = contract.BY_NAME[hook]
    parameters = ", ".join(("self", *found.parameters))
    return f'def {hook}({parameters}):\n    raise NotImplementedError("{found.purpose}")'


def _place(module: Module, cls: ast.ClassDef, hook: str) -> tuple[Place, str, str] | None:
    """Where the hook is written, with what stands before and after it."""
    order = {name: number for number, name in enumerate(contract.BY_NAME)}
    methods = [n for n in cls.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    earlier = [node for node in methods if order.get(node.name, 99) < order[hook]]
    later = [node for node in methods if order.get(node.name, -1) > order[hook]]
    last = cls.body[-1]
    if last.lineno == cls.lineno:
        return None  # The class is one line.
    if earlier or not later:
        line = (earlier[-1] if earlier else last).end_lineno or last.lineno
        column = len(module.lines[line - 1]) + 1
        return Place(module.shown, line, column, line, column), "\n\n", ""
    first = later[0]
    line = min([first.lineno, *(node.lineno for node in first.decorator_list)])
    while line > 1 and module.lines[line - 2].lstrip().startswith("#"):
        line -= 1  # A comment belongs to what it stands above.
    return Place(module.shown, line, 1, line, 1), "", "\n\n"


def _indent(module: Module, cls: ast.ClassDef) -> str:
    line = module.lines[cls.body[0].lineno - 1]
    return line[: len(line) - len(line.lstrip())]


def _offered() -> dict[str, Import]:
    """Name -> what the template binds it by."""
    offered = {name: Import(owner, name) for name, owner in USUAL.items()}
    text = (templates() / "hooks" / "imports.jinja").read_text(encoding="utf-8")
    text = re.sub(r"\{\{.*?\}\}", "", text)
    for found in IMPORT.finditer(text):
        for name in found["names"].split(","):
            if name.strip():
                offered[name.strip()] = Import(found["module"], name.strip())
    return offered
