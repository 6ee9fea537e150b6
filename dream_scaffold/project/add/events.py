"""The events of a project's callbacks: read from its runtime, which is never imported."""

import ast
import os
from dataclasses import dataclass
from pathlib import Path

from ... import resources
from ...check.facts import is_event
from ...check.fix.imports import Import, imports_of
from ...check.source import Module, Sources
from ...errors import DreamError
from ..choices import check_choice
from ..render import RUNTIME
from .example import signature_of

OUTSIDE_A_RUN = ("pre_launch", "on_interrupt")
"""A run that nobody launches, and that nothing interrupts, comes to none of them."""


@dataclass(frozen=True)
class Event:
    """A method that the runtime calls on callbacks."""

    name: str
    signature: str
    arguments: tuple[str, ...]

    @property
    def is_context(self) -> bool:
        return self.name.endswith("_context")


class Runtime:
    """What a runtime says of callbacks."""

    def __init__(self, project: Path) -> None:
        """Of the project's own runtime; where it has none, of the shipped one."""
        own = os.path.join(project, RUNTIME)
        folder = own if os.path.isdir(own) else resources.runtime_folder()
        module = _load(os.path.join(folder, "callbacks", "callback.py"))
        self.events = {event.name: event for event in _events(module)}
        self.imports = imports_of(module.tree) | {
            "DreamTrainer": Import("dream_trainer", "DreamTrainer"),
            "Optimizer": Import("torch.optim", "Optimizer"),
        }
        package = _load(os.path.join(folder, "callbacks", "__init__.py"))
        self.classes = _exported(package)

    def choose(self, names: list[str]) -> list[Event]:
        """The events of these names, in the runtime's order. Raises `DreamError`."""
        for name in names:
            check_choice("--event", name, list(self.events))
        return [event for name, event in self.events.items() if name in names]


def _load(path: str) -> Module:
    module = Sources().load(path)
    if module is None:
        shown = os.path.relpath(path)
        fact = f"The events of callbacks cannot be read from {shown}."
        raise DreamError(fact, "Restore the runtime with `dream update`.")
    return module


def _events(module: Module) -> list[Event]:
    found = []
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "Callback":
            methods = (item for item in node.body if isinstance(item, ast.FunctionDef))
            for item in methods:
                if is_event(item.name):
                    # Types of the runtime are quoted there, for it imports them late.
                    signature = signature_of(module, item).replace('"', "")
                    arguments = tuple(given.arg for given in item.args.args[1:])
                    found.append(Event(item.name, signature, arguments))
    return found


def _exported(module: Module) -> frozenset[str]:
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return frozenset(ast.literal_eval(node.value))
    return frozenset()
