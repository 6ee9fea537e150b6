"""Construction: records of dataclasses, presets of parameter classes, trainers."""

import ast
import inspect
from collections.abc import Callable
from typing import NamedTuple

from ..hinge import configs
from .classes import (
    Field,
    find_member,
    is_config,
    is_runtime_trainer,
    is_trainer,
    lift,
    linearize,
    parameter_class,
    record_fields,
    why_open,
)
from .domain import (
    Arguments,
    Class,
    External,
    Flaw,
    Function,
    Inherited,
    Origin,
    Preset,
    Record,
    Site,
    Unknown,
    Value,
)
from .enumerations import is_enumeration, member_of
from .expressions import Expressions
from .literals import literal
from .parameters import judge
from .signals import Raised

UPSTREAM = {
    "DeviceParameters": tuple(f"_{axis}" for axis in configs.AXES.values()),
    "CheckpointParameters": (
        *("async_mode", "model_weights_only", "resume_data", "storage_options", "strict_load"),
    ),
}
"""Class -> fields that upstream Dream Trainer has (0.3.0) and this runtime has not."""


TYPE_ERROR = External("builtins.TypeError")


class Launch(NamedTuple):
    """A trainer that is constructed with a configuration."""

    trainer: Class
    config: Value
    main: Function | None
    """The function that `cli()` called to that end, if it did."""


class Construction(Expressions):
    """Evaluates what makes an instance of a class."""

    def invoke(
        self, function: Function, receiver: Value, arguments: Arguments, site: Site
    ) -> Value:
        raise NotImplementedError

    def escape(self, arguments: Arguments, site: Site) -> Unknown:
        raise NotImplementedError

    def prepare(self) -> None:
        self.launches: list[Launch] = []
        self.flaws: list[Flaw] = []
        self.active: list[ast.AST] = []
        self.tries: list[Callable[[Value], bool]] = []
        """What catches an error, of every `try` that is being run: the innermost last."""

        self.main: Function | None = None
        """What `cli()` has called."""

    def preset(self, preset: Preset, arguments: Arguments, site: Site) -> Value:
        """Run the real class method of the runtime, with a class that only takes notes."""
        owner = parameter_class(preset.cls)
        method = getattr(owner, preset.name)
        function = getattr(method, "__func__", None)
        if function is None or getattr(method, "__self__", None) is not owner:
            return self.escape(arguments, site)
        passed: dict[str, Value] = {}

        def collect(**options: Value) -> Value:
            passed.update(options)
            return None

        try:
            function(collect, *arguments.positional, **arguments.keywords)
        except TypeError:
            taken = inspect.signature(function).parameters.values()
            left = [p.name for p in taken if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
            missing = [name for name in left if name not in arguments.keywords]
            if any(catching(TYPE_ERROR) for catching in self.tries):
                raise Raised(TYPE_ERROR) from None
            if missing and not arguments.positional and arguments.open is None:
                self.flaws.append(_not_given(preset.name, missing, site))
            elif arguments.positional:
                self.flaws.append(_nameless(preset.name, site))
            return Unknown("does not fit its definition", site)
        return self.build(preset.cls, arguments._replace(positional=[], keywords=passed), site)

    def instantiate(self, cls: "Class | type", arguments: Arguments, site: Site) -> Value:
        if isinstance(cls, type):
            return self.build(cls, arguments, site)
        if is_enumeration(cls):
            found = member_of(cls, arguments.positional[0]) if arguments.positional else None
            return found or self.failed("ValueError", site, "is not decidable")
        if is_trainer(cls):
            return self.construct_trainer(cls, arguments, site)
        init = self.initializer(cls)
        if isinstance(init, Function):
            record = Record(cls, site)
            self.open_record(record, site)
            self.invoke(init, record, arguments, site)
            return record
        if init is not None or why_open(cls) is not None:
            return self.build(cls, arguments, site)
        return Record(cls, site)

    def initializer(self, cls: Class) -> "Function | Class | type | None":
        """What initializes an instance: a written `__init__`, or the dataclass that has one."""
        for base in linearize(cls):
            if isinstance(base, type):
                return base
            if isinstance(base, Class):
                if isinstance(found := base.members.get("__init__"), Function):
                    return found
                if base.is_dataclass:
                    return base
        return None

    def construct_trainer(self, cls: Class, arguments: Arguments, site: Site) -> Value:
        record = Record(cls, site)
        found = find_member(cls, "__init__")
        if found is not None and isinstance(found[1], Function):
            self.invoke(found[1], record, arguments, site)
        else:
            self.launch(cls, arguments, site)
        return record

    def launch(self, cls: Class, arguments: Arguments, site: Site) -> None:
        given = [*arguments.positional, *arguments.keywords.values()]
        config: Value = next(
            (value for value in given if isinstance(value, Record) and is_config(value.cls)), None
        )
        if config is None:
            config = given[0] if given else Unknown("is given no configuration", site)
        self.launches.append(Launch(cls, config, self.main))

    def build(self, cls: "Class | type", arguments: Arguments, site: Site) -> Value:
        """An instance of a dataclass: given fields, then defaults; refused where they clash."""
        self.steps -= 30  # About what the real class takes, beside one expression.
        source = cls if isinstance(cls, type) else self.initializer(cls) or cls
        fields = record_fields(source) if not isinstance(source, Function) else {}
        record = Record(cls, site)
        self.open_record(record, site)
        names = [name for name, field in fields.items() if field.init and not field.named]
        if fields and len(arguments.positional) > len(names) and record.opened is None:
            self.refuse(record, _nameless(_shown(cls), site), TYPE_ERROR)
        keywords = dict(zip(names, arguments.positional, strict=False)) | arguments.keywords
        for name, value in keywords.items():
            if name in fields or record.opened is not None:
                self.set_field(record, name, value, arguments.sites.get(name, site))
            elif not self.sources.runtimes and name in UPSTREAM.get(_shown(cls), ()):
                # Which package is installed, source does not say; upstream's has the field.
                why = Unknown(f"hangs on {name}, a field of upstream's own package", site)
                self.set_field(record, name.removeprefix("_"), why, site)
            else:
                flaw = _unknown_keyword(cls, name, list(fields), site, arguments)
                self.refuse(record, flaw, TYPE_ERROR)
        for name, field in fields.items():
            if name not in keywords and name not in record.fields:
                value = arguments.open or self.default_of(field, site)
                record.fields[name] = value
                record.origins[name] = Origin(field.site or site, explicit=False)
        missing = [n for n, field in fields.items() if field.required and n not in keywords]
        missing = [name for name in missing if fields[name].init]
        if missing and record.opened is None and arguments.open is None:
            self.refuse(record, _not_given(_shown(cls), missing, site), TYPE_ERROR)
        self.finish(record, arguments, site)
        return record

    def set_field(self, record: Record, name: str, value: Value, site: Site) -> None:
        record.fields[name] = value
        record.origins[name] = Origin(site, explicit=True)

    def finish(self, record: Record, arguments: Arguments, site: Site) -> None:
        """What follows the generated `__init__`: validation."""
        for name, field in record_fields(record.cls).items():
            # A preset sets fields that its call does not name.
            value = record.fields.get(name)
            if field.site is None and name not in arguments.sites and literal(value):
                record.origins[name] = Origin(site, explicit=value != field.default)
        found = find_member(record.cls, "__post_init__") if isinstance(record.cls, Class) else None
        if found is not None and isinstance(found[1], Function):
            passed = [record.fields.pop(name, None) for name in self.passed_on(record)]
            self.invoke(found[1], record, Arguments(passed, {}, {}), site)
        before = len(record.flaws)
        judge(record, site, arguments.sites)
        for flaw in record.flaws[before:]:
            record.flaws.remove(flaw)
            self.refuse(record, flaw, configs.ConfigError)

    def refuse(self, record: Record, flaw: Flaw, error: Value) -> None:
        """What ends the program, unless it catches the error itself."""
        if any(catching(error) for catching in self.tries):
            raise Raised(error)
        self.flaws.append(flaw)
        record.flaws.append(flaw)

    def passed_on(self, record: Record) -> list[str]:
        return [name for name, field in record_fields(record.cls).items() if field.passed]

    def open_record(self, record: Record, site: Site) -> None:
        why = why_open(record.cls) if isinstance(record.cls, Class) else None
        if why is not None:
            record.opened = Unknown(f"is not decidable: {why}", site)

    def default_of(self, field: Field, site: Site) -> Value:
        if field.factory is not None:
            if callable(field.factory):
                return lift(field.factory(), site)
            return self.call(field.factory, Arguments([], {}, {}), field.site or site)
        if field.required:
            return Unknown("is not given", site)
        return field.default

    def call_inherited(self, callee: Inherited, arguments: Arguments, site: Site) -> Value:
        """A call of `super().method(...)` that leaves the project."""
        record = callee.receiver
        if callee.name == "__init__" and isinstance(record, Record):
            cls = record.cls
            if isinstance(cls, Class) and any(map(is_runtime_trainer, linearize(cls))):
                self.launch(cls, arguments, site)
            elif (base := parameter_class(cls)) is not None:
                built = self.build(base, arguments, site)
                if isinstance(built, Record):
                    record.fields |= built.fields
                    record.origins |= built.origins
                    record.flaws += built.flaws
            return None
        if callee.name == "__post_init__":
            return None
        return Unknown("is outside the project", site)


def _shown(cls: "Class | type") -> str:
    return cls.__name__ if isinstance(cls, type) else cls.name


def _nameless(shown: str, site: Site) -> Flaw:
    fact = f"{shown} takes values by name only, and is given one without."
    return Flaw("DT107", fact, f"Name it: {shown}(name=value).", site)


def _not_given(shown: str, names: list[str], site: Site) -> Flaw:
    listed = " and ".join(names)
    verb = "has" if len(names) == 1 else "have"
    fact = f"{shown} is made without {listed}, which {verb} no default."
    remedy = f"Give {listed}, or a default in {shown}."
    return Flaw("DT112", fact, remedy, site)


def _unknown_keyword(
    cls: "Class | type", name: str, fields: list[str], site: Site, arguments: Arguments
) -> Flaw:
    from difflib import get_close_matches

    shown = _shown(cls)
    near = get_close_matches(name, fields, n=1)
    undecorated = isinstance(cls, Class) and not cls.is_dataclass and name in cls.annotations
    if undecorated:
        remedy = f"Decorate {shown} with @dataclass(kw_only=True)."
    elif near:
        remedy = f"Write {near[0]}."
    elif isinstance(cls, Class):
        remedy = f"Add the field to {shown}, or leave it out."
    else:
        remedy = f"The fields of {shown} are {', '.join(fields)}."
    fact = f"{shown} has no field {name}."
    return Flaw("DT107", fact, remedy, arguments.sites.get(name, site))
