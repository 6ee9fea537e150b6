"""Fixes that take more than the facts of a rule: looked for only where somebody wants them."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from ..engine import Result
from ..facts import Edit, Finding, Fix, Place, Trainer
from ..source import Module
from .hooks import missing_hook

HOOK = re.compile(r"\b(?:call|calls) (?P<hook>\w+)\(")
FIELD = re.compile(r"^\w+ has no field (?P<wrong>\w+)\.$")
NEAREST = re.compile(r"^Write (?P<right>\w+)\.$")


def with_fixes(result: Result) -> tuple[Finding, ...]:
    """What a check found, missing hooks and unknown keywords with fixes as well."""
    modules = {module.shown: module for module in result.sources.modules()}
    trainers = result.project.trainers
    # A hook that only has to be renamed is not written a second time.
    renamed = {
        edit.text
        for finding in result.findings
        if finding.code == "DT205" and finding.fix is not None
        for edit in finding.fix.edits
    }
    return tuple(_with_fix(finding, trainers, modules, renamed) for finding in result.findings)


def _with_fix(
    finding: Finding, trainers: tuple[Trainer, ...], modules: dict[str, Module], renamed: set[str]
) -> Finding:
    module = modules.get(finding.place.path)
    if finding.fix is not None or module is None:
        return finding
    fix: Fix | None = None
    if finding.code in ("DT201", "DT206") and finding.severity == "error":
        fix = _hook(finding, trainers, module, renamed)
    elif finding.code == "DT107":
        fix = _keyword(finding, module)
    return finding if fix is None else replace(finding, fix=fix)


def _hook(
    finding: Finding, trainers: tuple[Trainer, ...], module: Module, renamed: set[str]
) -> Fix | None:
    found = HOOK.search(finding.message)
    trainer = next((each for each in trainers if each.place == finding.place), None)
    classes = (node for node in _classes(module) if module.name_place(node) == finding.place)
    cls = next(classes, None)
    if found is None or trainer is None or cls is None or found["hook"] in renamed:
        return None
    return missing_hook(module, cls, found["hook"], trainer)


def _classes(module: Module) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef))


def _keyword(finding: Finding, module: Module) -> Fix | None:
    """The keyword as it is meant, where one is near enough."""
    wrong, right = FIELD.match(finding.message), NEAREST.match(finding.help)
    path, line, column, *_ = finding.place
    if wrong is None or right is None:
        return None
    end = column + len(wrong["wrong"])
    if module.lines[line - 1][column - 1 : end - 1] != wrong["wrong"]:
        return None
    edit = Edit(Place(path, line, column, line, end), right["right"])
    return Fix(f"Write {right['right']}", (edit,))
