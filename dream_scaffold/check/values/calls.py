"""Calls: functions and classes of the project, presets, and the few foreign names that count."""

import ast
from typing import Any

from .arguments import changed
from .classes import find_member, is_config
from .construction import Construction
from .domain import (
    Arguments,
    Bound,
    Class,
    External,
    Function,
    Inherited,
    Method,
    Partial,
    Preset,
    Record,
    Scope,
    Site,
    Super,
    Unknown,
    Value,
)
from .foreign import FOREIGN, HARMLESS, HARMLESS_PACKAGES, PURE
from .literals import literal
from .methods import call_method
from .operators import LONGEST, undecided
from .signals import Exhausted, Raised, Signal
from .streams import Stream, give_away, iterate

DEEPEST_CALL = 24


class Calls(Construction):
    """Evaluates calls. Running a function's body comes with the subclass."""

    wild: int
    """Of how many calls around it is unknown whether they happen at all."""

    def annotation(self, node: ast.expr, scope: Scope) -> Value:
        """The class that an annotation names."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                node = ast.parse(node.value, mode="eval").body
            except (SyntaxError, ValueError, RecursionError):
                return None
        if isinstance(node, ast.BinOp):
            node = node.left
        try:
            return self.evaluate(node, scope.enclosing)
        except (Signal, Exhausted, RecursionError):
            return None

    def run_function(self, function: Function, scope: Scope) -> Value:
        raise NotImplementedError

    def call_node(self, node: ast.Call, scope: Scope) -> Value:
        callee = self.evaluate(node.func, scope)
        site = Site(scope.module, node)
        if isinstance(callee, External) and callee.name == "builtins.super" and not node.args:
            return self.super_value(scope, site)
        arguments = self.arguments(node, scope)
        return self.call(callee, arguments, site)

    def super_value(self, scope: Scope, site: Site) -> Value:
        inside: Scope | None = scope
        while inside is not None and inside.function is None:
            inside = inside.outer
        if inside is None or inside.function is None or inside.function.owner is None:
            return Unknown(site=site)
        return Super(inside.function.owner, inside.receiver)

    def arguments(self, node: ast.Call, scope: Scope) -> Arguments:
        positional: list[Value] = []
        keywords: dict[str, Value] = {}
        sites: dict[str, Site] = {}
        open_: Unknown | None = None
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                items = iterate(self.evaluate(argument.value, scope))
                if items is None or len(positional) + len(items) > LONGEST:
                    open_ = undecided(argument, scope)
                else:
                    positional += items
            else:
                positional.append(self.evaluate(argument, scope))
        for keyword in node.keywords:
            value = self.evaluate(keyword.value, scope)
            if keyword.arg is not None:
                keywords[keyword.arg] = value
                sites[keyword.arg] = Site(scope.module, keyword)
            elif isinstance(value, dict) and all(isinstance(key, str) for key in value):
                keywords |= value
                sites |= {key: Site(scope.module, keyword) for key in value}
            else:
                open_ = undecided(keyword.value, scope)
        return Arguments(positional, keywords, sites, open_)

    def call(self, callee: Value, arguments: Arguments, site: Site) -> Value:
        if isinstance(callee, Function):
            return self.invoke(callee, None, arguments, site)
        if isinstance(callee, Bound):
            return self.invoke(callee.function, callee.receiver, arguments, site)
        if isinstance(callee, (Class, type)):
            return self.instantiate(callee, arguments, site)
        if isinstance(callee, Preset):
            return self.preset(callee, arguments, site)
        if isinstance(callee, Partial):
            first, then = callee.arguments, arguments
            return self.call(
                callee.callee,
                Arguments(
                    first.positional + then.positional,
                    first.keywords | then.keywords,
                    first.sites | then.sites,
                    first.open or then.open,
                ),
                site,
            )
        if isinstance(callee, Method):
            return call_method(self, callee, arguments, site)
        if isinstance(callee, Inherited):
            return self.call_inherited(callee, arguments, site)
        if isinstance(callee, External):
            return self.call_external(callee, arguments, site)
        if isinstance(callee, Record) and isinstance(callee.cls, Class):
            found = find_member(callee.cls, "__call__")
            if found is not None:
                return self.call(self.bind(found[1], callee), arguments, site)
        return self.escape(arguments, site)

    def decided(self, callee: Value, given: list[Value], site: Site) -> Any:
        """What a callable gives, as a plain value. Raises `ValueError` where it is not decided."""
        value = self.call(callee, Arguments(given, {}, {}), site)
        if not literal(value):
            raise ValueError
        return value

    def escape(self, arguments: Arguments, site: Site) -> Unknown:
        """Hand values to code that the project does not show: it may do anything to them."""
        why = Unknown("may be changed here", site)
        self.may_raise()
        for value in (*arguments.positional, *arguments.keywords.values()):
            if isinstance(value, (Record, list, dict, set)):
                give_away(value, why)
            elif isinstance(value, (Function, Bound)) and len(self.active) < DEEPEST_CALL:
                # It may be called back, and launch a trainer.
                self.wild += 1
                self.call(value, Arguments([], {}, {}, why), site)
                self.wild -= 1
        return Unknown("is outside the project", site)

    # Functions.

    def invoke(
        self, function: Function, receiver: Value, arguments: Arguments, site: Site
    ) -> Value:
        if len(self.active) >= DEEPEST_CALL or self.active.count(function.node) > 2:
            return Unknown("calls itself too deeply", site)
        if isinstance(receiver, (Record, Class)) and function.kind != "staticmethod":
            arguments = arguments._replace(positional=[receiver, *arguments.positional])
        if function.opaque:
            why = Unknown("is decorated by foreign code", site)
            arguments = Arguments([], {}, {}, why)
        scope = Scope(function.scope.module, function.scope)
        scope.function, scope.receiver = function, receiver
        if not self.bind_arguments(function, arguments, scope, site):
            return Unknown("does not fit its definition", site)
        self.active.append(function.node)
        try:
            value = self.run_function(function, scope)
        finally:
            self.active.pop()
        if isinstance(value, Record) and is_config(value.cls):
            value.label = (function.name, function.site)
        return Unknown("is decorated by foreign code", site) if function.opaque else value

    def bind_arguments(
        self, function: Function, arguments: Arguments, scope: Scope, site: Site
    ) -> bool:
        """Give every parameter its value. False where the call does not fit."""
        parameters = function.node.args
        names = [item.arg for item in parameters.posonlyargs + parameters.args]
        given = list(arguments.positional)
        values: dict[str, Value] = dict(zip(names, given, strict=False))
        if parameters.vararg is not None:
            rest: Value = tuple(given[len(names) :])
            values[parameters.vararg.arg] = arguments.open or rest
        elif len(given) > len(names):
            return False
        extra: dict[Value, Value] = {}
        known = {*names, *(item.arg for item in parameters.kwonlyargs)}
        for name, value in arguments.keywords.items():
            if name in known and name not in values:
                values[name] = value
            elif parameters.kwarg is not None and name not in known:
                extra[name] = value
            else:
                return False
        if parameters.kwarg is not None:
            values[parameters.kwarg.arg] = arguments.open or extra
        for name in [*names, *(item.arg for item in parameters.kwonlyargs)]:
            if name in values:
                continue
            if arguments.open is not None:
                values[name] = arguments.open
            elif name in function.defaults:
                values[name] = function.defaults[name]
            else:
                return False
        scope.names |= values
        return True

    # Literals and foreign names.

    def call_external(self, callee: External, arguments: Arguments, site: Site) -> Value:
        name, given = callee.name, arguments.positional
        if name in PURE:
            given = [iterate(value) if isinstance(value, Stream) else value for value in given]
            arguments = arguments._replace(positional=given)
        if name in PURE and literal(given) and not arguments.keywords and not arguments.open:
            try:
                return PURE[name](*given)  # type: ignore[operator]
            except (TypeError, ValueError, ArithmeticError) as error:
                return self.failed(type(error).__name__, site, "raises")
        if callee.within("dream_trainer"):
            return self.call_runtime(callee, arguments, site)
        handler = FOREIGN.get(name)
        if handler is not None:
            return handler(self, arguments, site)
        if name.startswith("builtins.") and callee.last in HARMLESS:
            return Unknown(site=site)
        if name in PURE or name.split(".")[0] in ("os", "json"):
            self.may_raise()
        if name in PURE:
            unknown = (value for value in given if isinstance(value, Unknown))
            return next(unknown, Unknown(site=site))
        if name.split(".")[0] in HARMLESS_PACKAGES:
            functions = [value for value in given if isinstance(value, (Function, Class))]
            # Their decorators hand back what they are given.
            if len(given) == 1 and functions and not arguments.keywords:
                return functions[0]
            if name.startswith("logging."):
                return External(f"{name}()")
            return Unknown("is outside the project", site)
        return self.escape(arguments, site)

    def call_runtime(self, callee: External, arguments: Arguments, site: Site) -> Value:
        """A function or class of the vendored runtime: `cli`, `entrypoint`, callbacks."""
        given = arguments.positional
        if callee.last == "cli":
            self.start_cli(arguments, site)
            return None
        if given and isinstance(given[0], (Function, Class)):
            return given[0]  # `@entrypoint`, or another decorator.
        return Unknown("is part of the runtime", site)

    def start_cli(self, arguments: Arguments, site: Site) -> None:
        """`cli(main, config)`: a configuration, a factory, or a mapping of either."""
        given = dict(zip(("main", "config"), arguments.positional, strict=False))
        given |= {str(name): value for name, value in arguments.keywords.items()}
        main = given.get("main")
        config = given.get("config", Unknown("is given no configuration", site))
        named = config if isinstance(config, dict) else {None: config}
        self.main = main if isinstance(main, Function) else None
        for name, candidate in named.items():
            try:
                if isinstance(candidate, (Function, Bound, Class, type, Partial, Preset)):
                    candidate = self.call(candidate, Arguments([], {}, {}), site)
                if isinstance(candidate, Record) and name is not None:
                    candidate.key = str(name)
                    known = candidate.label
                    if known is None or isinstance(known[1].node, ast.Lambda):
                        candidate.label = (str(name), known[1] if known else candidate.site)
                if isinstance(candidate, Record) and self.sources.changes:
                    candidate = changed(candidate, self.sources.changes, site)
                self.call(main, Arguments([candidate], {}, {}), site)
            except Raised:
                continue
        self.main = None
