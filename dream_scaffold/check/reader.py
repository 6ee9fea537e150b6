"""From source to facts: the trainers of a project and the configurations that reach them."""

import ast
from collections.abc import Iterator
from dataclasses import replace

from .configurations import Candidate, Size, describe, evaluate, undecided
from .facts import Behaviour, Configuration, Fault, HookProblem, Match, Project, Script, Trainer
from .flow.behaviour import read_behaviour, read_script
from .hinge import configs, contract
from .methods import abstract_methods, mentioned_names, read_methods
from .program import Program, accepted_class, may_be_factory, values_of
from .settings import settings_of
from .source import Sources
from .values.classes import derives, is_config, is_trainer, linearize, why_open
from .values.construction import Launch
from .values.domain import Class, Function, Record, Unknown, Value


class Reader:
    """Reads the facts of the files that are checked."""

    def __init__(self, sources: Sources, size: Size | None, only: str | None) -> None:
        self.sources = sources
        self.size = size
        self.only = only
        self.programs: list[Program] = []
        self.faults: list[Fault] = []
        self.names: list[str] = []
        """Every configuration found, chosen or not."""

        self.found_trainer = False
        self.used: set[str] = set()
        """The files that trainers are made of."""

    def read(self, files: list[str]) -> Project:
        for file in files:
            module = self.sources.load(file)
            if module is not None:
                self.programs.append(Program(self.sources, module))
        trainers = tuple(self._trainer(cls, program) for cls, program in self._choose(files))
        self._add_loose_faults()
        hooks = {hook.name: hook for hook in contract.HOOKS}
        narrowed = self.only is not None or self.size is not None
        return Project(
            trainers=trainers,
            hooks=hooks,
            scripts=tuple(self._scripts()),
            narrowed=narrowed,
            faults=tuple(self.faults),
        )

    def _choose(self, files: list[str]) -> Iterator[tuple[Class, Program]]:
        """The trainers to check: those launched, and those that nothing derives from."""
        found: dict[ast.AST, tuple[Class, Program]] = {}
        derived: set[ast.AST] = set()
        launched: set[ast.AST] = set()
        for program in self.programs:
            for cls in program.classes:
                if not is_trainer(cls):
                    continue
                self.found_trainer = True
                known = found.get(cls.node)
                if known is None or cls.site.module is program.module:
                    found[cls.node] = (cls, program) if known is None else (known[0], program)
                derived |= {base.node for base in linearize(cls)[1:] if isinstance(base, Class)}
            launched |= {launch.trainer.node for launch in program.launches}
        for node, (cls, program) in found.items():
            in_files = cls.site.module.path in files
            is_leaf = node not in derived and not abstract_methods(cls)
            if node in launched or (in_files and is_leaf):
                yield cls, program

    def _trainer(self, cls: Class, program: Program) -> Trainer:
        methods = read_methods(cls)
        hooks = frozenset(name for name in methods if name in contract.BY_NAME)
        place = cls.site.module.name_place(cls.node)
        opened = why_open(cls)
        candidates = self._candidates(cls, program)
        described: list[Configuration] = []
        for candidate in candidates:
            evaluate(candidate, self.size)
            self.faults += candidate.faults
            self.faults += [Fault("DT002", match) for match in undecided(candidate)]
            config = describe(candidate, cls.name, place, hooks, opened)
            config = replace(config, settings=settings_of(candidate))
            if config not in described:
                described.append(config)
        if opened is not None:
            why = f"{cls.name} may have methods that its source does not show: {opened}."
            self.faults.append(Fault("DT002", Match(place, why)))
        return Trainer(
            name=cls.name,
            place=place,
            methods=methods,
            configs=tuple(described),
            hooks=hooks,
            mentioned=mentioned_names(cls),
            behaviour=self._behaviour(cls, program),
            open=opened,
            problems=tuple(_always(cls, hooks, opened)),
        )

    # What code does.

    def _behaviour(self, cls: Class, program: Program) -> Behaviour:
        self.used |= {program.module.path, cls.site.module.path}
        self.used |= {base.site.module.path for base in linearize(cls) if isinstance(base, Class)}
        return read_behaviour(cls, program.outcomes[0].run)

    def _scripts(self) -> Iterator[Script]:
        """The modules that a trainer comes from or is launched in, and what they import."""
        seen: set[str] = set()
        for program in self.programs:
            run = program.outcomes[0].run
            launches = any(
                launch.trainer.site.module.path in self.used for launch in program.launches
            )
            pending = [program.module.path] if program.module.path in self.used or launches else []
            while pending:
                path = pending.pop()
                if path not in seen and path in run.scopes:
                    seen.add(path)
                    scope = run.scopes[path]
                    yield read_script(scope.module, scope, run)
                    pending += [module.path for module in run.imports.get(path, [])]

    # Configurations.

    def _candidates(self, cls: Class, program: Program) -> list[Candidate]:
        """Every configuration that reaches `cls`: those launched with it, then the others."""
        candidates: dict[object, Candidate] = {}
        main: Function | None = None
        launched: set[object] = set()
        elsewhere: set[object] = set()
        for other in self.programs:
            mains: set[Function] = set()
            # Two scripts may launch the same configuration, and each change it first.
            for launch in other.launches:
                key = _key(launch.config)
                if launch.trainer.node is not cls.node:
                    elsewhere.add(key)
                elif isinstance(launch.config, Record):
                    own = (other.module.path, key)
                    candidate = candidates.setdefault(own, _candidate(launch.config))
                    if other.cut is not None and other.cut not in candidate.values:
                        candidate.values.append(other.cut)
                    launched.add(key)
                    if launch.config not in candidate.values:
                        candidate.values.append(launch.config)
                    candidate.launched = True
                    # Of those that `cli()` is given, it takes the first.
                    candidate.is_default |= launch.main is None or launch.main not in mains
                    if launch.main is not None:
                        mains.add(launch.main)
                    main = main or launch.main
                else:
                    self._add_unknown_launch(launch)
        for key, candidate in self._reachable(cls, program, main, launched | elsewhere):
            candidates[key] = candidate
        any_launched = any(candidate.launched for candidate in candidates.values())
        chosen = []
        for candidate in candidates.values():
            keys = {value.key for value in candidate.values if isinstance(value, Record)}
            names = dict.fromkeys((candidate.name, *(key for key in keys if key is not None)))
            self.names += names
            candidate.meant = candidate.is_default or not any_launched or self.only is not None
            if self.only is None or self.only in names:
                chosen.append(candidate)
        return chosen

    def _add_unknown_launch(self, launch: Launch) -> None:
        config = launch.config
        if isinstance(config, Unknown) and config.site is not None:
            why = f"The configuration of {launch.trainer.name} is not decided: {config.text}."
            self.faults.append(Fault("DT002", Match(config.site.place, why)))

    def _reachable(
        self, cls: Class, program: Program, main: Function | None, known: set[object]
    ) -> Iterator[tuple[object, Candidate]]:
        """Factories and instances in the script, the trainer's module and what they import.

        Those that are `known` are not evaluated a second time.
        """
        paths = dict.fromkeys([program.module.path, cls.site.module.path])
        seen = set(known)
        accepted = accepted_class(cls, main, program)
        for scope in [scope for path in paths for scope in program.scopes(path)]:
            for name, value in scope.names.items():
                if name.startswith("_") or _key(value) in seen:
                    continue
                if isinstance(value, Function) and may_be_factory(value, program):
                    seen.add(_key(value))
                    values = [outcome.value for outcome in program.call(value, main)]
                    records = [value for value in values if _is_config(value)]
                    if records and all(_fits(record, accepted) for record in records):
                        place = value.site.module.name_place(value.node)  # type: ignore[arg-type]
                        yield _key(value), Candidate(value.name, place, values)
                elif isinstance(value, Record) and _is_config(value) and _fits(value, accepted):
                    seen.add(_key(value))
                    values = list(values_of(program, scope, name))
                    candidate = _candidate(value)
                    candidate.values = values
                    yield _key(value), candidate

    def _add_loose_faults(self) -> None:
        """What was refused outside of any configuration that reaches a trainer."""
        reported = {(fault.code, fault.match.place) for fault in self.faults}
        for program in self.programs:
            counted: dict[tuple[str, object], list[Fault]] = {}
            for outcome in program.outcomes:
                for flaw in outcome.run.flaws:
                    match = Match(flaw.site.place, flaw.fact, flaw.remedy)
                    key = (flaw.code, match.place)
                    if key not in reported:
                        counted.setdefault(key, []).append(Fault(flaw.code, match))
            for faults in counted.values():
                certain = len(faults) >= len(program.outcomes)
                code, match = faults[0]
                self.faults.append(Fault(code, match._replace(certain=certain)))


def _candidate(record: Record) -> Candidate:
    if record.label is not None:
        name, site = record.label
        node = site.node
        is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        place = site.module.name_place(node) if is_function else site.place  # type: ignore[arg-type]
        return Candidate(name, place, [])
    name = record.cls.__name__ if isinstance(record.cls, type) else record.cls.name
    return Candidate(name, record.site.place, [])


def _key(value: Value) -> object:
    """What makes a configuration the same one on every path."""
    if isinstance(value, Function):
        return value.node
    if isinstance(value, Record):
        site = value.label[1] if value.label is not None else value.site
        return site.node
    return id(value)


def _is_config(value: Value) -> bool:
    return isinstance(value, Record) and is_config(value.cls)


def _fits(value: Value, accepted: Value) -> bool:
    if not isinstance(accepted, (Class, type)) or not isinstance(value, Record):
        return True
    return derives(value.cls, accepted)


def _always(cls: Class, hooks: frozenset[str], opened: str | None) -> Iterator[HookProblem]:
    """The hooks that every run calls and `cls` does not define."""
    parameters = configs.DeviceParameters.SINGLE_DEVICE(compile_model=False)
    place = cls.site.module.name_place(cls.node)
    for problem in contract.problems(parameters, parameters.degrees, hooks, cls.name):
        message = problem.fact
        if opened is not None:
            message += f" It may still come from elsewhere: {opened}."
        match = Match(place, message, problem.remedy, certain=opened is None)
        yield HookProblem(code=problem.code, hook=problem.hook, match=match)
