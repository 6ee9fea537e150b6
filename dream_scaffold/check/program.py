"""One file of the project as the script that is started, and what can be asked of it."""

import ast
from collections.abc import Iterator
from contextlib import suppress

from .source import Module, Sources
from .values.classes import is_config, is_trainer, linearize
from .values.construction import Launch
from .values.domain import Arguments, Class, Function, Record, Scope, Unknown, Value
from .values.explore import Outcome, explore
from .values.signals import Raised
from .values.statements import Interpreter


class Program:
    """One file of the project, run on abstract values as the script that is started."""

    def __init__(self, sources: Sources, module: Module) -> None:
        self.sources = sources
        self.module = module
        self.outcomes: list[Outcome] = []
        for outcome in explore(sources, self._start):
            self.outcomes.append(outcome)
            if not any(map(is_trainer, outcome.run.classes)):
                break  # No trainer in sight: its other paths tell nothing.
        self.cut = next(
            (outcome.value for outcome in self.outcomes if isinstance(outcome.value, Unknown)),
            None,
        )
        """Why there are paths that were not followed, if there are."""

    def _start(self, run: Interpreter) -> Value:
        run.module_scope(self.module, "__main__")
        return None

    @property
    def classes(self) -> Iterator[Class]:
        for outcome in self.outcomes:
            yield from outcome.run.classes

    @property
    def launches(self) -> Iterator[Launch]:
        for outcome in self.outcomes:
            yield from outcome.run.launches

    def scopes(self, path: str) -> Iterator[Scope]:
        """The names of a module and of every module that it imports."""
        run = self.outcomes[0].run
        modules = [path, *(module.path for module in run.imports.get(path, []))]
        for module in modules:
            if module in run.scopes:
                yield run.scopes[module]

    def call(self, function: Function, main: Function | None) -> list[Outcome]:
        """What a factory returns, on every path, and `main` makes of it."""
        path, name = function.site.module.path, function.name
        node = function.node

        def start(run: Interpreter) -> Value:
            is_main = path == self.module.path
            scope = run.module_scope(function.site.module, "__config__" if is_main else None)
            found = scope.names.get(name)
            if not isinstance(found, Function) or found.node is not node:
                return Unknown("is replaced")
            value = run.invoke(found, None, Arguments([], {}, {}), found.site)
            if main is not None and isinstance(value, Record):
                scope = run.module_scope(main.site.module, "__config__")
                with suppress(Raised):
                    run.call(scope.names.get(main.name), Arguments([value], {}, {}), main.site)
            return value

        return list(explore(self.sources, start))


def values_of(program: Program, scope: Scope, name: str) -> Iterator[Value]:
    """What a name of a module stands for, on every path."""
    for outcome in program.outcomes:
        known = outcome.run.scopes.get(scope.module.path)
        if known is not None and name in known.names:
            yield known.names[name]


def may_be_factory(function: Function, program: Program) -> bool:
    """Whether calling a function without arguments may give a configuration."""
    node = function.node
    if isinstance(node, ast.Lambda) or function.opaque or function.kind != "function":
        return False
    parameters = node.args
    names = parameters.posonlyargs + parameters.args + parameters.kwonlyargs
    if any(item.arg not in function.defaults for item in names):
        return False
    if node.returns is None:
        return any(isinstance(inner, ast.Return) and inner.value for inner in ast.walk(node))
    returned = program.outcomes[0].run.annotation(node.returns, function.scope)
    if isinstance(returned, (Class, type)):
        return is_config(returned)
    return isinstance(returned, Unknown)


def accepted_class(cls: Class, main: Function | None, program: Program) -> Value:
    """The class of configuration that a trainer's annotations ask for, if they do."""
    run = program.outcomes[0].run
    for base in linearize(cls):
        if not isinstance(base, Class):
            continue
        init = base.members.get("__init__")
        annotation = base.annotations.get("config")
        if annotation is None and isinstance(init, Function):
            parameters = init.node.args.args + init.node.args.kwonlyargs
            found = [item.annotation for item in parameters if item.arg == "config"]
            annotation = found[0] if found else None
        if annotation is not None:
            return run.annotation(annotation, base.scope)
    parameters = main.node.args.args[:1] if main is not None else []
    if main is not None and parameters and parameters[0].annotation is not None:
        return run.annotation(parameters[0].annotation, main.scope)
    return None
