"""AGENTS.md and llms.txt name what there is: files, commands, hooks, fields, public names."""

import ast
import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import torch
from permutations import GOLDEN, PERMUTATIONS
from typer.core import TyperGroup
from typer.main import get_command

from dream_scaffold import resources
from dream_scaffold.check.rules import RULES
from dream_scaffold.cli import app
from dream_scaffold.project.modes import read_mode
from dream_trainer import DreamTrainer, callbacks, configs, contract
from dream_trainer.utils.cli import COMMANDS
from dream_trainer.utils.modifiers import MODIFIERS
from dream_trainer.world import World

PAGES = ("AGENTS.md", "llms.txt")
RUNTIME = resources.runtime().parent
CODES = {rule.CODE for rule in RULES}
TRAIN_OPTIONS = {"--set", "--cfg", *MODIFIERS}
LONGEST = 70


def prose(text: str) -> str:
    """A page without its blocks of commands."""
    return re.sub(r"```.*?```", "", text, flags=re.S)


def spans(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", prose(text))


def is_there(path: str, project: Path) -> bool:
    return (project / path).exists() or (RUNTIME / path).exists()


def defined(project: Path) -> Iterator[str]:
    """Every class and function of a project's modules, and the members of its classes."""
    for module in project.glob("*.py"):
        for node in ast.parse(module.read_text()).body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                yield node.name
            for member in node.body if isinstance(node, ast.ClassDef) else []:
                if isinstance(member, ast.FunctionDef):
                    yield f"{node.name}.{member.name}"
                if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
                    yield f"{node.name}.{member.target.id}"


def works(command: str) -> bool:
    """Whether the program would take these words; some tests run them."""
    program, *words = shlex.split(command, comments=True)
    if program == "dream":
        chosen = get_command(app)
        while isinstance(chosen, TyperGroup):
            chosen = chosen.commands[words.pop(0)]
        options = chosen.make_context("", words).params
        read_mode(options.get("parallel") or "single")
        return options.get("code") in {None, *CODES}
    if program in ("python", "torchrun"):
        _, *of_script = words[words.index("train.py") :]
        if of_script[:1] == ["--set"]:
            field, _ = of_script[1].split("=")
            group, name = field.split(".")
            return name in vars(getattr(configs.DreamTrainerConfig(), group))
        if of_script[:1] == ["dry-run"]:
            return "dry-run" in COMMANDS and of_script[1] == "--world-size"
        return set(of_script) <= TRAIN_OPTIONS
    return program in ("ruff", "pytest", "pip")


def is_known(span: str, project: Path) -> bool:
    """Whether what stands in the code font is something."""
    if span.startswith("self."):
        first, *rest = span.split(".")[1:]
        return all(hasattr(World, name) for name in rest) and (
            hasattr(DreamTrainer, first) or first == "world"
        )
    if " " in span or span in ("pytest",):
        return works(span)
    if span.startswith("DT"):
        return span in CODES
    if span == ".item()":
        return hasattr(torch.Tensor, "item")
    if re.fullmatch(r"dream_trainer(\.\w+)*", span):
        return import_module(span) is not None
    if "/" in span or re.search(r"\.(py|md|txt)$", span):
        return is_there(span, project)
    return (
        span in contract.BY_NAME
        or span in configs.__all__
        or span in {*defined(project), *vars(configs.DreamTrainerConfig())}
        or hasattr(configs.DreamTrainerConfig(), span)
        or hasattr(DreamTrainer, span)
        or is_mode(span)
    )


def is_mode(span: str) -> bool:
    return all(
        part in ("single", "ddp", "fsdp", "hsdp", "cp", "tp", "pp") for part in span.split("+")
    )


@pytest.mark.parametrize("name", PERMUTATIONS)
@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_is_there(page: str, name: str) -> None:
    project = GOLDEN / name
    text = (project / page).read_text()
    assert len(text.splitlines()) < LONGEST
    public = re.search(r"## Public names\n(.*)", text, re.S)
    before = text[: public.start()] if public else text
    assert [span for span in spans(before) if not is_known(span, project)] == []
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert [link for link in links if not is_there(link, project)] == []
    for block in re.findall(r"```bash\n(.*?)```", text, re.S):
        for line in block.splitlines():
            assert all(works(command) for command in line.partition("#")[0].split("&&")), line


def test_the_names_of_llms_are_public_and_all_are_there() -> None:
    text = (GOLDEN / "lm-fsdp/llms.txt").read_text().partition("## Public names\n")[2]
    found: dict[str, set[str]] = {}
    for clause in re.split(r"\n|; ", text):
        if clause:
            module, *names = spans(clause)
            found.setdefault(module, set()).update(names)
    for module, names in found.items():
        assert [name for name in names if not hasattr(import_module(module), name)] == []
    assert found["dream_trainer.callbacks"] == set(callbacks.__all__)
    parameters = {name for name in configs.__all__ if name.endswith("Parameters")}
    assert found["dream_trainer.configs"] == parameters


@pytest.mark.parametrize("name", PERMUTATIONS)
def test_the_hooks_of_the_mode_are_named(name: str) -> None:
    options = PERMUTATIONS[name]
    rows = (GOLDEN / name / "AGENTS.md").read_text().splitlines()
    told = [row for row in rows if row.startswith("| what that asks of the trainer |")]
    assert [re.findall(r"`(\w+)`", row) for row in told] == (
        [options.hooks] if options.hooks else []
    )


@pytest.mark.parametrize("name", [name for name in PERMUTATIONS if name.startswith("blank")])
def test_what_is_owed_is_said(name: str) -> None:
    tree = ast.parse((GOLDEN / name / "train.py").read_text())
    stubs = [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and isinstance(node.body[-1], ast.Raise)
    ]
    text = (GOLDEN / name / "AGENTS.md").read_text()
    [owed] = re.findall(r"Still to be written: (.*?)\. Until", text) or [""]
    assert re.findall(r"`(\w+)`", owed) == stubs


@pytest.mark.parametrize("name", PERMUTATIONS)
def test_every_file_of_a_project_is_in_llms(name: str) -> None:
    project = GOLDEN / name
    links = re.findall(r"\]\(([^)]+)\)", (project / "llms.txt").read_text())
    files = {
        path.relative_to(project).as_posix()
        for path in project.rglob("*")
        if path.is_file() and not path.name.startswith(".") and ".dream" not in path.parts
    }
    assert files - {"llms.txt", "LICENSE"} == {
        link for link in links if not link.startswith("dream_trainer/")
    }
