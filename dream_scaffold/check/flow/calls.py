"""Calls: the project's own functions are followed, everything else is an act."""

import ast
from collections.abc import Sequence
from typing import Any

from ..facts import (
    Attribute,
    Call,
    Code,
    Constant,
    Display,
    Foreign,
    Guard,
    Path,
    Term,
    Unsure,
    is_within,
)
from ..values.classes import find_member
from ..values.domain import Class, Function
from .elements import either
from .expressions import Expressions
from .frame import Above, Frame, Given, Local
from .spots import Written, WrittenCall

DEEPEST = 10


class Calls(Expressions):
    """Follows calls. Statements come with the subclass."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.active: list[tuple[int, str]] = []
        self.followed: set[ast.AST] = set()
        """The functions that some walk has gone into."""

    def run_body(self, body: list[ast.stmt], frame: Frame) -> None:
        raise NotImplementedError

    def set_path(self, dotted: str, value: Term, frame: Frame, node: ast.AST) -> None:
        raise NotImplementedError

    def call_node(self, node: ast.Call, frame: Frame) -> Term:
        is_super = isinstance(node.func, ast.Name) and node.func.id == "super"
        if is_super and frame.owner is not None:
            return Above(frame.owner, frame.receiver or Unsure())
        function = self.term(node.func, frame)
        arguments: list[Term] = []
        keywords: dict[str, Term] = {}
        is_open = False
        for argument in node.args:
            value = self.term(argument, frame)
            if not isinstance(argument, ast.Starred):
                arguments.append(value)
            elif isinstance(value, Display) and not value.is_open and value.kind != "dict":
                arguments += value.items
            else:
                keywords["*"], is_open = value, True
        for keyword in node.keywords:
            value = self.term(keyword.value, frame)
            names = _constant_keys(value) if keyword.arg is None else None
            if keyword.arg is not None:
                keywords[keyword.arg] = value
            elif names is not None and isinstance(value, Display):
                keywords |= dict(zip(names, value.items, strict=True))
            else:
                keywords["**"], is_open = value, True
        return self.call(function, Given(arguments, keywords, is_open), node, frame)

    def call(self, function: Term, given: Given, node: ast.AST, frame: Frame) -> Term:
        if isinstance(function, Call) and function.last == "partial" and function.arguments:
            merged = {**function.keywords, **given.keywords}
            first, *before = function.arguments
            both = Given([*before, *given.positional], merged, given.is_open)
            return self.call(first, both, node, frame)
        found = self.definition(function)
        if found is not None:
            code, receiver = found
            if isinstance(function, Path) and function.dotted.count(".") > 1:
                self.emit(function, given, node, frame)
            returned = self.follow(code, receiver, given, node, frame)
            if returned is not None:
                return returned
        self.follow_all(function, given, node, frame)
        special = self.special(function, given.positional, node, frame)
        if special is not None:
            return special
        made = self.emit(function, given, node, frame)
        self.call_back(made, frame, node)
        return made

    def emit(self, function: Term, given: Given, node: ast.AST, frame: Frame) -> Call:
        spot: Any = WrittenCall(frame.module, node)
        made = Call(function, tuple(given.positional), given.keywords, spot, given.is_open)
        self.act("call", made, node, frame)
        return made

    def definition(self, function: Term) -> tuple[Function | Local, Term | None] | None:
        """The project's function that a call goes to, and the object that it is bound to."""
        if isinstance(function, Code) and isinstance(function.definition, (Function, Local)):
            return function.definition, None
        owner: Class | None = None
        receiver: Term | None = None
        found: tuple[Class, object] | None = None
        if isinstance(function, Path) and "." in function.dotted:
            dotted, _, name = function.dotted.rpartition(".")
            owner, receiver = self.instances.get(dotted), Path(dotted)
            found = find_member(owner, name) if owner is not None else None
        elif isinstance(function, Attribute) and isinstance(function.of, Above):
            above = function.of
            receiver = above.receiver
            dotted = receiver.dotted if isinstance(receiver, Path) else ""
            owner = self.instances.get(dotted, above.owner)
            found = find_member(owner, function.name, after=above.owner)
        if found is None or not isinstance(found[1], Function):
            return None
        return found[1], None if found[1].kind == "staticmethod" else receiver

    def follow_all(self, function: Term, given: Given, node: ast.AST, frame: Frame) -> None:
        """A method of every module below another: follow that of each of their classes."""
        if not isinstance(function, Path) or ".**." not in function.dotted:
            return
        above, _, name = function.dotted.partition(".**.")
        seen: set[ast.AST] = set()
        for path, cls in list(self.instances.items()):
            if is_within(Path(path), above) and cls.node not in seen:
                seen.add(cls.node)
                found = find_member(cls, name)
                if found is not None and isinstance(found[1], Function):
                    self.follow(found[1], Path(path), given, node, frame)

    def special(
        self, function: Term, arguments: Sequence[Term], node: ast.AST, frame: Frame
    ) -> Term | None:
        """What `getattr` and `setattr` with a known name are."""
        if not isinstance(function, Foreign) or len(arguments) < 2:
            return None
        of, name = arguments[:2]
        if not isinstance(name, Constant) or not isinstance(name.value, str):
            return None
        if function.name == "builtins.getattr" and len(arguments) == 2:
            return self.attribute(of, name.value, frame, node)
        if function.name == "builtins.setattr" and isinstance(of, Path) and len(arguments) == 3:
            self.set_path(f"{of.dotted}.{name.value}", arguments[2], frame, node)
            return Constant(None)
        return None

    def follow(
        self,
        code: Function | Local,
        receiver: Term | None,
        given: Given,
        node: ast.AST,
        frame: Frame,
        constructing: bool = False,
    ) -> Term | None:
        """Walk through a function; what it returns. None where it cannot be followed."""
        key = (id(code.node), receiver.dotted if isinstance(receiver, Path) else "")
        if key in self.active or len(self.active) >= DEEPEST:
            self.is_cut |= key not in self.active
            return None
        inner = frame.inner() if isinstance(code, Local) else Frame(code.scope)
        if isinstance(code, Local):
            inner.outer, inner.scope, inner.module = (
                code.frame,
                code.frame.scope,
                code.frame.module,
            )
        else:
            inner.owner, inner.receiver = code.owner, receiver
        inner.guards = frame.guards
        inner.via = (*frame.via, Written(frame.module, node))
        inner.constructing = frame.constructing or constructing
        if receiver is not None:
            given = given._replace(positional=[receiver, *given.positional])
        self.fill(code, given, inner)
        self.active.append(key)
        try:
            return self.walk_function(code.node, inner)
        finally:
            self.active.pop()

    def follow_property(
        self, function: Function, receiver: Term, frame: Frame, node: ast.AST
    ) -> Term:
        found = self.follow(function, receiver, Given(), node, frame)
        return Unsure() if found is None else found

    def walk_function(self, node: ast.AST, frame: Frame) -> Term:
        self.followed.add(node)
        if isinstance(node, ast.Lambda):
            value = self.term(node.body, frame)
            self.act("return", value, node.body, frame)
            return value
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.run_body(node.body, frame)
            if frame.yields:
                return Display("list", tuple(frame.returns), is_open=True)
        return either(frame.returns) if frame.returns else Constant(None)

    def fill(self, code: Function | Local, given: Given, frame: Frame) -> None:
        """Bind parameters to what a call gives."""
        arguments, keywords, is_open = given
        parameters = code.node.args
        positional = [item.arg for item in parameters.posonlyargs + parameters.args]
        names = positional + [item.arg for item in parameters.kwonlyargs]
        defaults: dict[str, Term] = {}
        if isinstance(code, Function):
            defaults = {name: self.lift(value) for name, value in code.defaults.items()}
        else:
            written = parameters.defaults
            late = zip(positional[len(positional) - len(written) :], written, strict=True)
            defaults = {name: self.term(default, code.frame) for name, default in late}
            pairs = zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True)
            defaults |= {key.arg: self.term(value, code.frame) for key, value in pairs if value}
        for name in names:
            frame.names[name] = Unsure() if is_open else defaults.get(name) or Unsure()
        frame.names |= dict(zip(positional, arguments, strict=False))
        frame.names |= {name: value for name, value in keywords.items() if name in names}
        if parameters.vararg is not None:
            rest = tuple(arguments[len(positional) :])
            frame.names[parameters.vararg.arg] = Display("tuple", rest, is_open=is_open)
        if parameters.kwarg is not None:
            rest_names = [name for name in keywords if name not in names]
            whole = keywords.get("**")
            frame.names[parameters.kwarg.arg] = (
                whole
                if whole is not None and rest_names == ["**"]
                else Display(
                    "dict",
                    tuple(keywords[name] for name in rest_names),
                    tuple(map(Constant, rest_names)),
                    is_open=is_open,
                )
            )

    def call_back(self, call: Call, frame: Frame, node: ast.AST) -> None:
        """Follow the functions that were handed to foreign code: it may call them."""
        values = (*call.arguments, *call.keywords.values())
        callbacks = [
            found
            for value in values
            if isinstance(value, (Code, Path)) and (found := self.definition(value)) is not None
        ]
        if not callbacks:
            return
        inner = frame.inner()
        inner.guards += (Guard("callback", call, Written(frame.module, node)),)
        receiver = call.receiver
        elements: list[Term] = []
        if call.last == "apply" and isinstance(receiver, Path):
            elements = [Path(f"{receiver.dotted}.**")]
        elif call.last in ("map", "filter") and len(call.arguments) > 1:
            elements = [self.element(argument) for argument in call.arguments[1:]]
        for definition, bound in callbacks:
            if definition.node not in self.followed:
                given = Given(elements, is_open=not elements)
                self.follow(definition, bound, given, node, inner)


def _constant_keys(value: Term) -> list[str] | None:
    """The keys of a dict whose every key is a known text."""
    if not isinstance(value, Display) or value.kind != "dict" or value.is_open:
        return None
    keys = [key.value for key in value.keys if isinstance(key, Constant)]
    names = [key for key in keys if isinstance(key, str)]
    return names if len(names) == len(value.keys) else None
