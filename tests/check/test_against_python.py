"""Evaluation against Python itself: random programs are run and evaluated, and must agree.

`DREAM_PROGRAMS=5000 pytest tests/check/test_against_python.py` tries more of them.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType

import pytest
import random_programs

from dream_scaffold.check.hinge import configs
from dream_scaffold.check.source import Sources
from dream_scaffold.check.values.domain import Arguments, Function, Record, Unknown
from dream_scaffold.check.values.explore import Outcome, explore
from dream_scaffold.check.values.statements import Interpreter

PROGRAMS = int(os.environ.get("DREAM_PROGRAMS", "240"))


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real parameter classes, under the name by which programs import them."""
    package = ModuleType("dream_trainer")
    package.__dict__.update(configs=configs, DreamTrainerConfig=configs.DreamTrainerConfig)
    monkeypatch.setitem(sys.modules, "dream_trainer", package)
    monkeypatch.setitem(sys.modules, "dream_trainer.configs", configs)


def run(files: dict[str, str]) -> object:
    """What Python makes of a program: a configuration, or the error it raises."""
    try:
        for file, text in files.items():
            module = ModuleType(file.removesuffix(".py"))
            sys.modules[module.__name__] = module
            exec(compile(text, file, "exec"), module.__dict__)
        return module.make()
    except Exception as error:
        return error
    finally:
        for file in files:
            sys.modules.pop(file.removesuffix(".py"), None)


def evaluate(files: dict[str, str], folder: Path) -> list[Outcome]:
    overlay = {str(folder / file): text for file, text in files.items()}
    sources = Sources(overlay=overlay)
    module = sources.load(str(folder / "train.py"))

    def start(machine: Interpreter) -> object:
        scope = machine.module_scope(module)
        function = scope.names.get("make")
        if not isinstance(function, Function):
            return Unknown("there is no make()")
        return machine.invoke(function, None, Arguments([], {}, {}), function.site)

    return list(explore(sources, start))


def differences(real: object, value: object, path: str) -> Iterator[tuple[str, str]]:
    """(kind, text) of what an evaluated value has else than the real one: wrong or unknown."""
    if isinstance(value, Unknown):
        yield "unknown", f"{path}: {value.text}"
    elif isinstance(value, Record) and value.opened is not None:
        yield "unknown", f"{path}: {value.opened.text}"
    elif is_dataclass(real) and isinstance(value, Record):
        for field in fields(real):
            inner = getattr(real, field.name)
            name = f"{path}.{field.name}"
            if field.name not in value.fields:
                yield "wrong", f"{name} is missing"
            else:
                yield from differences(inner, value.fields[field.name], name)
    elif isinstance(real, (list, tuple)) and type(real) is type(value):
        if any(isinstance(item, Unknown) for item in value):
            yield "unknown", f"{path}: {value!r}"
        elif len(real) != len(value):
            yield "wrong", f"{path}: {real!r} is {value!r}"
        else:
            for index, (one, other) in enumerate(zip(real, value, strict=True)):
                yield from differences(one, other, f"{path}[{index}]")
    elif isinstance(real, dict) and isinstance(value, dict):
        if any(isinstance(key, Unknown) for key in value):
            yield "unknown", f"{path}: its keys"
        elif list(real) != list(value):
            yield "wrong", f"{path}: {real!r} is {value!r}"
        else:
            for key in real:
                yield from differences(real[key], value[key], f"{path}[{key!r}]")
    elif type(real) is not type(value) or real != value:
        yield "wrong", f"{path}: {real!r} is {value!r}"


def has_unknown(value: object) -> bool:
    """Whether something of a configuration is not decided."""
    if isinstance(value, Record):
        return value.opened is not None or any(map(has_unknown, value.fields.values()))
    return isinstance(value, Unknown)


def complaints(files: dict[str, str], folder: Path, decidable: bool) -> list[str]:
    """How evaluation and Python disagree on a program."""
    real = run(files)
    if isinstance(real, SyntaxError):
        return []  # Quotes within quotes, before Python 3.12.
    outcomes = evaluate(files, folder)
    flaws = {flaw.code for outcome in outcomes for flaw in outcome.run.flaws}
    if isinstance(real, configs.ConfigError):
        known = real.code in flaws or any(has_unknown(outcome.value) for outcome in outcomes)
        return [] if known else [f"wrong: {real} ({real.code}) is not found"]
    if isinstance(real, Exception):
        return []
    if not outcomes:
        return ["wrong: every path is thought to raise"]
    found = [list(differences(real, outcome.value, "config")) for outcome in outcomes]
    fitting = [each for each in found if all(kind == "unknown" for kind, _ in each)]
    if not fitting:
        return [f"{kind}: {text}" for each in found for kind, text in each if kind == "wrong"]
    if not decidable:
        return []
    if len(outcomes) > 1:
        return [f"unknown: {len(outcomes)} paths"]
    if flaws:
        return [f"wrong: {flaws} reported of a program that runs"]
    return [f"{kind}: {text}" for each in fitting for kind, text in each]


@pytest.mark.parametrize("decidable", [True, False])
def test_programs_are_evaluated_as_python_runs_them(tmp_path: Path, decidable: bool) -> None:
    failed = []
    for seed in range(PROGRAMS if decidable else PROGRAMS // 2):
        files = random_programs.program(seed, undecidable=not decidable)
        failed += [f"{seed}: {text}" for text in complaints(files, tmp_path, decidable)]
    assert not failed


def test_most_programs_run() -> None:
    """Programs that raise test little: most must not."""
    raised = [
        error
        for seed in range(100)
        if isinstance(error := run(random_programs.program(seed)), Exception)
        and not isinstance(error, configs.ConfigError)
    ]
    assert len(raised) < 40, raised[:5]
