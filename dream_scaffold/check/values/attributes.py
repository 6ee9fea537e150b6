"""Attributes: of records, classes, modules, foreign names and literals."""

from ..hinge import configs
from ..source import Module, Sources
from .classes import find_member, parameter_class
from .domain import (
    Arguments,
    Bound,
    Class,
    External,
    Function,
    Inherited,
    Method,
    Namespace,
    Partial,
    Preset,
    Record,
    Site,
    Super,
    Unknown,
    Value,
)
from .enumerations import is_enumeration, members
from .literals import literal
from .streams import is_named_tuple

METHODS = frozenset(
    (
        *("get", "items", "keys", "values", "update", "copy", "pop", "popitem", "setdefault"),
        *("append", "extend", "insert", "clear", "sort", "reverse", "remove", "add"),
        *("discard", "union", "intersection", "difference", "symmetric_difference"),
        *("issubset", "issuperset", "isdisjoint", "upper", "lower", "strip", "lstrip"),
        *("rstrip", "split", "rsplit", "splitlines", "partition", "rpartition"),
        *("removeprefix", "removesuffix", "replace", "startswith", "endswith", "join"),
        *("title", "capitalize", "swapcase", "casefold", "rjust", "ljust", "center", "zfill"),
        *("find", "rfind", "rindex", "isdigit", "isalpha", "isalnum", "isidentifier"),
        *("isupper", "islower", "isspace", "isnumeric", "format", "is_integer", "bit_length"),
        *("index", "count"),
    )
)
"""Methods of literals and containers that evaluation may call."""


class Attributes:
    """Evaluates attribute access. Expressions, calls and statements come with the subclasses."""

    sources: Sources

    # What the subclasses bring.

    def call(self, callee: Value, arguments: Arguments, site: Site) -> Value:
        raise NotImplementedError

    def build(self, cls: "Class | type", arguments: Arguments, site: Site) -> Value:
        raise NotImplementedError

    def assign_attribute(self, target: Value, name: Value, value: Value, site: Site) -> None:
        raise NotImplementedError

    def namespace(self, module: Module) -> Namespace:
        raise NotImplementedError

    def external(self, name: str) -> Value:
        """A foreign name; a parameter class of the runtime is the real class."""
        if name.startswith("dream_trainer."):
            found = getattr(configs, name.rpartition(".")[2], None)
            if isinstance(found, type):
                return found
        if name in ("typing.TYPE_CHECKING", "typing_extensions.TYPE_CHECKING"):
            return True
        if name in ("math.inf", "math.nan", "math.pi"):
            return float({"inf": "inf", "nan": "nan", "pi": "3.141592653589793"}[name[5:]])
        return External(name)

    def attribute(self, value: Value, name: str, site: Site) -> Value:
        if isinstance(value, Record):
            return self.record_attribute(value, name, site)
        if isinstance(value, Namespace):
            return self.member(value, name)
        if isinstance(value, Class):
            found = find_member(value, name)
            if found is not None:
                return self.bind(found[1], value)
            if name == "__name__":
                return value.name
            if name == "__members__" and is_enumeration(value):
                return dict(members(value))
            if callable(getattr(parameter_class(value), name, None)):
                return Preset(value, name)
        if isinstance(value, (Function, type)) and name == "__name__":
            return value.name if isinstance(value, Function) else value.__name__
        if isinstance(value, type):
            if callable(getattr(value, name, None)):
                return Preset(value, name)
            default = getattr(value, name, None)
            if literal(default) and hasattr(value, name):
                return default
        if isinstance(value, External):
            return self.external(f"{value.name}.{name}")
        if isinstance(value, Super):
            return self.inherited(value, name)
        if isinstance(value, Unknown):
            return value
        if name in METHODS and isinstance(value, (str, int, float, list, dict, set)):
            return Method(value, name)
        return Unknown(site=site)

    def member(self, namespace: Namespace, name: str) -> Value:
        """What `module.name` is: a name in it or one of its submodules."""
        if name in namespace.scope.names:
            return namespace.scope.names[name]
        inner = self.sources.submodule(namespace.module, name)
        if isinstance(inner, Module):
            return self.namespace(inner)
        if isinstance(inner, str):
            return self.external(inner)
        if namespace.scope.stars:
            return self.external(f"{namespace.scope.stars[-1]}.{name}")
        return Unknown(f"`{namespace.module.name}` has no `{name}`")

    def record_attribute(self, record: Record, name: str, site: Site) -> Value:
        if name in record.fields:
            return record.fields[name]
        if isinstance(record.cls, Class):
            found = find_member(record.cls, name)
            if found is not None:
                member = found[1]
                if isinstance(member, Function) and member.kind == "property":
                    return self.call(Bound(member, record), Arguments([], {}, {}), site)
                return self.bind(member, record)
        if name == "__class__":
            return record.cls
        if name == "__dict__" and record.opened is None:
            return dict(record.fields)
        if is_named_tuple(record.cls) and name in ("_replace", "_asdict"):
            function = "dataclasses.replace" if name == "_replace" else "dataclasses.asdict"
            return Partial(External(function), Arguments([record], {}, {}))
        return record.opened or Unknown(site=site)

    def bind(self, member: Value, receiver: Value) -> Value:
        """A member of a class as its object or the class itself sees it."""
        if isinstance(member, Function):
            cls = receiver.cls if isinstance(receiver, Record) else receiver
            if member.kind == "classmethod":
                return Bound(member, cls)
            if member.kind in ("function", "property") and isinstance(receiver, Record):
                return Bound(member, receiver)
        return member

    def inherited(self, value: Super, name: str) -> Value:
        cls = value.receiver.cls if isinstance(value.receiver, Record) else value.receiver
        if isinstance(cls, Class):
            found = find_member(cls, name, after=value.owner)
            if found is not None:
                member = self.bind(found[1], value.receiver)
                if isinstance(member, Bound) and member.function.kind == "property":
                    return self.call(
                        member, Arguments([], {}, {}), Site(cls.scope.module, cls.node)
                    )
                return member
        return Inherited(value.owner, name, value.receiver)
