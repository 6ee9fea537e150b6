"""From classes and modules to what they do."""

import ast
import re
from collections.abc import Mapping
from typing import TypeGuard

from ..facts import Behaviour, Call, Code, Foreign, Kind, Model, Path, Script, Term, Trace, Unsure
from ..hinge import contract
from ..source import Module
from ..values.classes import find_member, is_trainer, linearize
from ..values.domain import Class, External, Function, FunctionNode, Scope, Value
from ..values.statements import Interpreter
from .frame import Frame, Given
from .objects import origin_of
from .spots import Written
from .statements import Statements

WORD = re.compile(r"[^\W\d]\w*")
FIRST = ("__init__", "__post_init__")


def read_behaviour(cls: Class, run: Interpreter) -> Behaviour:
    """Follow the methods of a trainer in the order in which a run calls them."""
    walker = Statements(run)
    walker.instances["self"] = cls
    traces: dict[str, Trace] = {}
    hooks = [hook.name for hook in contract.HOOKS]
    for name in (*FIRST, *hooks):
        found = find_member(cls, name)
        if found is not None and _is_method(found[1]):
            traces[name] = trace_method(walker, found[1], name)
    for name in _others(cls, traces):
        found = find_member(cls, name)
        if found is not None and _is_method(found[1]) and found[1].node not in walker.followed:
            traces[name] = trace_method(walker, found[1], name)
    kinds = _Kinds()
    return Behaviour(
        traces=traces,
        attributes=walker.attributes,
        kinds={
            path: kinds.of(found) for path, found in walker.instances.items() if path != "self"
        },
        models=_models(walker, traces, kinds),
        forwards=_forwards(walker, kinds),
    )


def _others(cls: Class, known: Mapping[str, Trace]) -> list[str]:
    """The members of a class and of its bases that are not `known`."""
    classes = [base for base in linearize(cls) if isinstance(base, Class)]
    return [
        name for name in dict.fromkeys(n for c in classes for n in c.members) if name not in known
    ]


def _is_method(value: Value) -> TypeGuard[Function]:
    return isinstance(value, Function) and value.kind != "property"


def trace_method(walker: Statements, function: Function, name: str) -> Trace:
    """Follow a method whose object is called `self`."""
    receiver = None if function.kind == "staticmethod" else Path("self")
    return trace_function(walker, function, receiver, name)


def trace_function(
    walker: Statements, function: Function, receiver: Term | None, name: str
) -> Trace:
    """Follow a function whose arguments are known by their names only."""
    node = function.node
    walker.acts, walker.is_cut, walker.steps = [], False, max(walker.steps, 2_000)
    frame = Frame(function.scope)
    frame.owner, frame.receiver = function.owner, receiver
    names = _parameters(node)
    for parameter in names:
        frame.names[parameter] = Path(parameter)
    if receiver is not None and names:
        frame.names[names[0]] = receiver
    walker.active.append((id(node), receiver.dotted if isinstance(receiver, Path) else ""))
    walker.walk_function(node, frame)
    walker.active.pop()
    own = names[1:] if receiver is not None else names
    spot = Written(function.site.module, node)
    return Trace(name, spot, tuple(walker.acts), walker.is_cut, tuple(own))


def _parameters(node: FunctionNode) -> list[str]:
    given = node.args
    names = [item.arg for item in given.posonlyargs + given.args]
    names += [given.vararg.arg] if given.vararg is not None else []
    names += [item.arg for item in given.kwonlyargs]
    return names + ([given.kwarg.arg] if given.kwarg is not None else [])


def _models(walker: Statements, traces: dict[str, Trace], kinds: "_Kinds") -> dict[str, Model]:
    models: dict[str, Model] = {}
    trace = traces.get("configure_models")
    for act in trace.of_kind("set") if trace is not None else ():
        target = act.target
        if not isinstance(target, Path) or target.dotted.count(".") != 1 or act.constructing:
            continue
        name = target.last
        term = walker.attributes.get(target.dotted, act.term)
        if isinstance(origin_of(term), Path):  # `self.model = self.model.to(...)`
            term = act.term
        cls = walker.instances.get(target.dotted)
        kind = kinds.of(cls) if cls is not None else None
        made = next(iter(origin_of(term).options()))
        if not isinstance(made, (Call, Unsure)):
            continue
        certain = kind is not None and kind.is_module
        certain |= isinstance(made, Call) and made.name.startswith("torch.nn.")
        if kind is not None and not kind.is_module and not kind.is_open:
            continue
        if isinstance(made, Call) and not certain and _is_plain(made):
            continue
        models[name] = Model(
            name=name,
            term=term,
            act=act,
            kind=kind,
            certain=certain,
            trained=_is_trained(f"self.{name}", traces),
        )
    return models


def _is_plain(made: Call) -> bool:
    """Whether a call surely returns something else than a module."""
    function = made.function
    return isinstance(function, Foreign) and function.name.startswith(("builtins.", "math."))


def _is_trained(path: str, traces: dict[str, Trace]) -> bool | None:
    trace = traces.get("configure_optimizers")
    if trace is None:
        return None
    for act in trace.acts:
        if any(isinstance(term, Path) and _at(term, path) for term in act.term.walk()):
            return True
    return None if trace.is_open else False


def _at(term: Path, path: str) -> bool:
    return term.dotted == path or term.dotted.startswith(f"{path}.")


def _forwards(walker: Statements, kinds: "_Kinds") -> dict[str, Trace]:
    forwards: dict[str, Trace] = {}
    seen: set[ast.AST] = set()
    for path, cls in list(walker.instances.items()):
        if path == "self" or cls.node in seen or not kinds.of(cls).is_module:
            continue
        seen.add(cls.node)
        found = find_member(cls, "forward")
        if found is not None and isinstance(found[1], Function):
            forwards[path] = trace_function(walker, found[1], Path(path), "forward")
    return forwards


class _Kinds:
    """The facts of classes, each made once."""

    def __init__(self) -> None:
        self.known: dict[ast.AST, Kind] = {}

    def of(self, cls: Class) -> Kind:
        if cls.node not in self.known:
            self.known[cls.node] = read_kind(cls)
        return self.known[cls.node]


def read_kind(cls: Class, traces: dict[str, Trace] | None = None) -> Kind:
    """The facts of a class."""
    bases: list[str] = []
    methods: set[str] = set()
    mentioned: set[str] = set()
    is_open = False
    for base in linearize(cls):
        if isinstance(base, Class):
            methods |= set(base.members)
            mentioned |= _mentioned(base)
            if base is not cls:
                bases.append(base.name)
        elif isinstance(base, (External, type)):
            bases.append(base.name if isinstance(base, External) else base.__name__)
        else:
            is_open = True
    return Kind(
        name=cls.name,
        place=cls.site.module.name_place(cls.node),
        bases=tuple(bases),
        methods=frozenset(methods),
        mentioned=frozenset(mentioned),
        is_open=is_open,
        traces=traces or {},
    )


def _mentioned(cls: Class) -> set[str]:
    """The words of a class; those of its texts and comments as well, which does no harm."""
    first, last = cls.node.lineno, cls.node.end_lineno or cls.node.lineno
    return set(WORD.findall("\n".join(cls.site.module.lines[first - 1 : last])))


def read_script(module: Module, scope: Scope, run: Interpreter) -> Script:
    """What a module does, its classes and functions taken one by one."""
    walker = Statements(run)
    frame = Frame(scope)
    walker.acts = []
    for node in module.tree.body:
        _import(walker, node, frame)
    body = Trace("<module>", Written(module, module.tree), tuple(walker.acts), walker.is_cut)
    functions: dict[str, Trace] = {}
    kinds: list[Kind] = []
    for name, value in list(scope.names.items()):
        if isinstance(value, Function) and value.site.module is module:
            if value.node not in walker.followed:
                functions[name] = trace_function(walker, value, None, name)
        elif isinstance(value, Class) and value.site.module is module and not is_trainer(value):
            kinds.append(_read_class(walker, value))
    return Script(path=module.shown, body=body, functions=functions, kinds=tuple(kinds))


def _import(walker: Statements, node: ast.stmt, frame: Frame) -> None:
    """What a statement does when its module, or class, is imported."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None and not isinstance(default, ast.Constant):
                walker.term(default, frame)
        for decorator in node.decorator_list:
            found = walker.term(decorator, frame)
            if isinstance(found, Foreign) and found.name.startswith("dream_trainer."):
                given = Given([Code(node.name, "function", None)])
                walker.emit(found, given, decorator, frame)
    elif isinstance(node, ast.ClassDef):
        inner = frame.inner()
        for statement in node.body:
            _import(walker, statement, inner)
    else:
        walker.run_body([node], frame)


def _read_class(walker: Statements, cls: Class) -> Kind:
    walker.instances, walker.attributes = {"self": cls}, {}
    traces: dict[str, Trace] = {}
    names = sorted(cls.members, key=lambda name: name != "__init__")
    for name in names:
        value = cls.members[name]
        if _is_method(value) and value.owner is cls:
            traces[name] = trace_method(walker, value, name)
    return read_kind(cls, traces)
