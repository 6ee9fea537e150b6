"""The calls in which a project makes its configurations."""

import ast
from collections.abc import Iterator

from ...check.fix.imports import imports_of
from ...check.source import Module

ENDING = "TrainerConfig"
"""Of the runtime's classes that a configuration derives from."""


def config_classes(module: Module) -> list[str]:
    """The names under which a module has a class of configurations, the runtime's among them."""
    imports = imports_of(module.tree)
    found = [
        name
        for name, item in imports.items()
        if item.module.partition(".")[0] == "dream_trainer" and str(item.name).endswith(ENDING)
    ]
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef):
            bases = [ast.unparse(base) for base in node.bases]
            if any(base in found or base.endswith(f".{ENDING}") for base in bases):
                found.append(node.name)
    return found


def config_calls(module: Module, factories: list[ast.FunctionDef]) -> list[ast.Call]:
    """Every call that makes a configuration; copies by `replace` made from one are none."""
    names = {*config_classes(module), *_returned(factories)}
    nodes = (node for node in ast.walk(module.tree) if isinstance(node, ast.Call))
    calls = [node for node in nodes if ast.unparse(node.func) in names]
    return sorted(calls, key=lambda call: call.lineno)


def _returned(factories: list[ast.FunctionDef]) -> Iterator[str]:
    """The classes whose objects the factories return."""
    for factory in factories:
        for node in ast.walk(factory):
            if isinstance(node, ast.Return) and isinstance(node.value, ast.Call):
                name = ast.unparse(node.value.func)
                if name.rpartition(".")[2][:1].isupper():
                    yield name


def display(module: Module, node: ast.expr) -> ast.expr | None:
    """A list, tuple or mapping as it is written; of a name, what the module gives it."""
    if isinstance(node, (ast.List, ast.Tuple, ast.Dict)):
        return node
    if not isinstance(node, ast.Name):
        return None
    given = [value for name, value in _assignments(module.tree) if name == node.id]
    is_shown = len(given) == 1 and isinstance(given[0], (ast.List, ast.Tuple, ast.Dict))
    return given[0] if is_shown else None


def _assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Every name that is given a value anywhere in a module, with the value."""
    for item in ast.walk(tree):
        if isinstance(item, ast.Assign):
            yield from ((ast.unparse(target), item.value) for target in item.targets)
        elif isinstance(item, ast.AnnAssign) and item.value is not None:
            yield ast.unparse(item.target), item.value
