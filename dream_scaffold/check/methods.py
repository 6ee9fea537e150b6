"""What a trainer class offers under each name: hooks, stubs, signatures."""

import ast
import re

from .facts import Method, Place, Signature
from .hinge import contract
from .values.classes import linearize
from .values.domain import (
    Class,
    Function,
    Site,
    Value,
)
from .values.literals import literal

NAME = re.compile(r"\.\s*([^\W\d]\w*)")


def read_methods(cls: Class) -> dict[str, Method]:
    """Every method of `cls`, the inherited ones of the project included."""
    methods: dict[str, Method] = {}
    for base in linearize(cls):
        if not isinstance(base, Class):
            continue
        for name, value in base.members.items():
            if name not in methods and (method := _read(name, value, base, cls)) is not None:
                methods[name] = method
    return methods


def abstract_methods(cls: Class) -> list[str]:
    """The methods that a subclass still owes."""
    owed: dict[str, bool] = {}
    for base in linearize(cls):
        if isinstance(base, Class):
            for name, value in base.members.items():
                owed.setdefault(name, isinstance(value, Function) and value.abstract)
    return [name for name, is_abstract in owed.items() if is_abstract]


def mentioned_names(cls: Class) -> frozenset[str]:
    """Every attribute name that the source of `cls` and of its bases reads."""
    found: set[str] = set()
    for base in linearize(cls):
        if isinstance(base, Class):
            first, last = base.node.lineno, base.node.end_lineno or base.node.lineno
            found.update(NAME.findall("\n".join(base.site.module.lines[first - 1 : last])))
    return frozenset(found)


def _read(name: str, value: Value, base: Class, cls: Class) -> Method | None:
    inherited = base.node is not cls.node
    if isinstance(value, Function):
        node = value.node
        module = value.site.module
        is_lambda = isinstance(node, ast.Lambda)
        place = module.place(node) if isinstance(node, ast.Lambda) else module.name_place(node)
        plain = not value.opaque and value.kind != "property"
        return Method(
            name=name,
            owner=base.name,
            place=place,
            inherited=inherited,
            stub=plain and not is_lambda and _is_stub(value),
            signature=_signature(value) if plain else None,
        )
    if name not in contract.BY_NAME or literal(value):
        return None
    return Method(name=name, owner=base.name, place=_assigned(name, base), inherited=inherited)


def _assigned(name: str, cls: Class) -> Place:
    for statement in cls.node.body:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                if isinstance(target, ast.Name) and target.id == name:
                    return Site(cls.site.module, target).place
    return cls.site.module.name_place(cls.node)


def _is_stub(function: Function) -> bool:
    body = [] if isinstance(function.node, ast.Lambda) else function.node.body
    return all(map(_does_nothing, body))


def _does_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Raise):
        raised = statement.exc
        callee = raised.func if isinstance(raised, ast.Call) else raised
        return isinstance(callee, ast.Name) and callee.id == "NotImplementedError"
    is_constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_constant or isinstance(statement, ast.Pass)


def _signature(function: Function) -> Signature:
    parameters = function.node.args
    positional = [item.arg for item in parameters.posonlyargs + parameters.args]
    shown = list(positional)
    if parameters.vararg is not None:
        shown.append(f"*{parameters.vararg.arg}")
    elif parameters.kwonlyargs:
        shown.append("*")
    shown += [item.arg for item in parameters.kwonlyargs]
    if parameters.kwarg is not None:
        shown.append(f"**{parameters.kwarg.arg}")
    # The receiver takes the first place, and may do so by way of `*args`.
    receiver = 0 if function.kind == "staticmethod" else 1
    required = len([name for name in positional if name not in function.defaults])
    return Signature(
        text=f"({', '.join(shown)})",
        least=max(required - receiver, 0),
        most=None if parameters.vararg is not None else len(positional) - receiver,
        required_keywords=tuple(
            item.arg for item in parameters.kwonlyargs if item.arg not in function.defaults
        ),
    )
