"""The trainer of a project, and the configurations that reach it, as `dream check` reads them."""

import ast
import os
from dataclasses import dataclass

from ...check.facts import Configuration, Trainer
from ...check.source import Module
from ...errors import DreamError
from .draft import Draft


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A trainer with its source."""

    trainer: Trainer
    module: Module
    node: ast.ClassDef


def read_trainer(draft: Draft, name: str | None) -> Subject:
    """The trainer called `name`, or the only one. Raises `DreamError`."""
    result = draft.check()
    trainers = list(result.project.trainers)
    for broken in result.sources.broken.values():
        fact = f"{broken.place} cannot be read: {broken.message}"
        raise DreamError(fact, "Mend it, and run the command again.")
    names = ", ".join(trainer.name for trainer in trainers)
    chosen = [trainer for trainer in trainers if name in (None, trainer.name)]
    if name is None:  # Those of tests serve the tests.
        chosen = [t for t in chosen if not _is_of_tests(draft, t)] or chosen
    if not chosen:
        what = f"No trainer is called {name}." if name else "The project has no trainer to check."
        raise DreamError(what, f"There is {names}." if names else "Take its file from git.")
    if len(chosen) > 1:
        raise DreamError(f"There are several trainers: {names}.", "Choose one with --trainer.")
    [trainer] = chosen
    module = draft.module(os.path.abspath(trainer.place.path))
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef) and module.name_place(node) == trainer.place:
            return Subject(trainer=trainer, module=module, node=node)
    raise DreamError(f"{trainer.place} has no class {trainer.name}.", "Run the command again.")


def _is_of_tests(draft: Draft, trainer: Trainer) -> bool:
    path = os.path.relpath(os.path.abspath(trainer.place.path), draft.project)
    return path.startswith(f"tests{os.sep}")


def factories(trainer: Trainer, module: Module) -> list[ast.FunctionDef]:
    """The functions of a module that make configurations of the trainer, in their order."""
    places = {config.place for config in trainer.configs}
    nodes = (node for node in module.tree.body if isinstance(node, ast.FunctionDef))
    return [node for node in nodes if module.name_place(node) in places]


def config_files(trainer: Trainer) -> list[str]:
    """Where the configurations stand, those with the most first."""
    paths = [os.path.abspath(config.place.path) for config in trainer.configs]
    return sorted(dict.fromkeys(paths), key=lambda path: -paths.count(path))


def on_one_device(trainer: Trainer) -> Configuration | None:
    """A configuration that needs one process; else any."""
    single = [c for c in trainer.configs if set(c.axes.values()) == {1}]
    return next(iter([*single, *trainer.configs]), None)
