"""The project as `dream new` would make it from other answers: what is added is taken from it."""

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent

from ...check import Options as CheckOptions
from ...check.engine import Result, check
from ...check.facts import Trainer
from ...check.fix.imports import Import, bound, imports_of
from ...check.hinge import contract
from ...check.source import Module, Sources
from ...errors import DreamError
from ..modes import PARTS
from ..options import Options
from ..render import RUNTIME, render_project


@dataclass(frozen=True, kw_only=True)
class Example:
    """A generated project, read."""

    modules: dict[str, Module]
    """Name of a file at the top of the project -> its source."""

    trainer: Trainer
    node: ast.ClassDef

    @property
    def train(self) -> Module:
        return self.modules["train.py"]

    def method(self, name: str) -> str | None:
        """The text of a method of the trainer."""
        for node in self.node.body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return text_of(self.train, node)
        return None

    def fits(self, body: str, trainer: Trainer, project: Path) -> bool:
        """Whether all that a method names is in another project as well."""
        tree = ast.parse(body)
        own, theirs = self.trainer, trainer
        made = set(_assigned(tree))
        for chain in _chains(tree):
            first = chain.split(".")[1]
            if first in made:
                continue
            if chain in own.behaviour.attributes and chain not in theirs.behaviour.attributes:
                return False
            if first in own.methods and first not in theirs.methods:
                return False
        fields, known = _fields(own), _fields(theirs)
        if any(_field(chain) in fields - known for chain in _chains(tree)):
            return False
        return all(self._has(found, project) for found in self._imported(tree))

    def _imported(self, tree: ast.Module) -> Iterator[Import]:
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        offered = imports_of(self.train.tree)
        return (found for name, found in offered.items() if name in names)

    def _has(self, found: Import, project: Path) -> bool:
        """Whether what is imported from a file of the project is there."""
        if f"{found.module}.py" not in self.modules or found.name is None:
            return True
        module = Sources().load(os.path.join(project, f"{found.module}.py"))
        return module is not None and found.name in bound(module.tree)


def render_example(options: Options) -> Example:
    """Raises `DreamError` where no such project can be made."""
    options.check()
    with TemporaryDirectory(prefix="dream-add-") as folder:
        project = Path(folder) / options.name
        project.mkdir()
        render_project(options, project)
        result = check(CheckOptions(paths=(os.fspath(project),)))
        return _read(result, os.path.realpath(project))


def _read(result: Result, project: str) -> Example:
    inside = os.path.join(project, "")
    modules = {
        os.path.realpath(module.path).removeprefix(inside): module
        for module in result.sources.modules()
        if RUNTIME not in module.path.split(os.sep)
    }
    [trainer] = result.project.trainers
    train = modules["train.py"]
    for node in train.tree.body:
        if isinstance(node, ast.ClassDef) and node.name == trainer.name:
            return Example(modules=modules, trainer=trainer, node=node)
    raise DreamError("The template has no trainer.", "Install dream-scaffold again.")


def with_hook(options: Options, hook: str) -> Options | None:
    """The answers, changed as little as it takes, under which a project may have `hook`.

    None where its recipe never does.
    """
    if isinstance(contract.BY_NAME[hook].needed, str):
        return options
    modes = [options.parallel, *(f"{options.parallel}+{part}" for part in PARTS), *PARTS]
    for mode in modes:
        for compile, ckpt_acts in ((False, False), (True, False), (False, True)):
            tried = replace(
                options,
                parallel=mode,
                compile=options.compile or compile,
                ckpt_acts=options.ckpt_acts or ckpt_acts,
            )
            try:
                tried.check()
            except DreamError:
                continue
            if hook in tried.hooks:
                return replace(tried, parallel=tried.mode.name)
    return None


def text_of(module: Module, node: ast.FunctionDef) -> str:
    """A function as it stands, its decorators included, moved to the left margin."""
    first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
    return dedent("\n".join(module.lines[first - 1 : node.end_lineno])).rstrip()


def signature_of(module: Module, node: ast.FunctionDef) -> str:
    """From `def` to the colon, moved to the left margin."""
    first = node.body[0]
    lines = module.lines[node.lineno - 1 : first.lineno]
    lines[-1] = lines[-1].encode()[: first.col_offset].decode()
    return dedent("\n".join(lines)).rstrip()


def _chains(tree: ast.Module) -> Iterator[str]:
    """`self.model.layers` and `self.model`, for every such expression."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            if text.startswith("self.") and text.replace(".", "").isidentifier():
                yield text


def _assigned(tree: ast.Module) -> Iterator[str]:
    """The attributes of `self` that are given a value."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield ast.unparse(node).removeprefix("self.")


def _fields(trainer: Trainer) -> set[str]:
    """The fields of its configurations."""
    return {name for config in trainer.configs for name in config.settings if "." not in name}


def _field(chain: str) -> str:
    parts = chain.split(".")
    return parts[2] if parts[1] == "config" and len(parts) > 2 else ""
