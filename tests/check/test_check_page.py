"""docs/check.md: its commands do what it shows, and it names all that there is."""

import json
import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import check_page
import pytest
import typer
import yaml

from dream_scaffold.check import Result
from dream_scaffold.check.options import FORMATS, SETTINGS, Options, read_settings
from dream_scaffold.check.report import json as json_report
from dream_scaffold.cli import app
from dream_trainer.utils.modifiers import MODIFIERS

TEXT = check_page.PAGE.read_text(encoding="utf-8")


def command(name: str) -> Any:
    return typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]


def options(name: str) -> list[str]:
    """Every spelling of every option of a command."""
    given = [item for item in command(name).params if item.param_type_name == "option"]
    return [spelling for item in given for spelling in item.opts]


def section(title: str) -> str:
    _, mark, rest = TEXT.partition(f"\n## {title}\n")
    assert mark, title
    return rest.partition("\n## ")[0]


def test_the_page_shows_what_the_commands_print() -> None:
    """`make docs` renews it."""
    assert check_page.page() == TEXT
    shown = [found["output"] for found in check_page.CONSOLE.finditer(TEXT)]
    assert len(shown) > 5 and all(shown)
    assert not [output for output in shown if "Usage: " in output or "Traceback" in output]


def test_every_option_is_in_the_table() -> None:
    table = section("Options")
    names = [*options("check"), "--help"]
    assert len(names) > 15
    assert [name for name in names if not re.search(rf"`{name}[ `]", table)] == []


def test_the_page_names_no_option_that_there_is_not() -> None:
    of_a_run = {"--set", *MODIFIERS}
    spellings = {*options("check"), *options("explain"), "--help", *of_a_run}
    named = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", TEXT))
    assert named - spellings == set()


def test_every_format_is_shown() -> None:
    formats = section("Formats")
    assert [name for name in FORMATS if f"`{name}`" not in formats and name != "full"] == []


def test_every_setting_is_in_the_table() -> None:
    table = section("Settings").partition("| Key |")[2]
    assert sorted(
        re.findall(r"`([\w-]+)`", "".join(re.findall(r"\n\| (.*?) \|", table)))
    ) == sorted(SETTINGS)


def test_the_settings_of_the_page_are_settings(tmp_path: Path) -> None:
    block, *_ = check_page.blocks("toml")
    assert tomllib.loads(block)
    path = tmp_path / "pyproject.toml"
    path.write_text(block)
    assert Options(**read_settings(str(path))).processes == 32  # type: ignore[arg-type]


def test_every_key_of_json_is_in_the_table(project: Callable[..., Result]) -> None:
    result = project("config = DreamTrainerConfig(device_parameters=DeviceParameters())")
    report = json.loads(json_report.render(result))
    table = section("Formats")
    keys = {*report, *report["configs"][0], *report["findings"][0], *report["summary"]}
    assert len(keys) > 15
    assert [key for key in keys if f"`{key}`" not in table] == []


@pytest.mark.parametrize("block", check_page.blocks("yaml"))
def test_every_command_of_a_pipeline_is_one(block: str) -> None:
    assert yaml.safe_load(block)
    check_commands(block)


@pytest.mark.parametrize("language", ["groovy", "json", ""])
def test_every_other_command_is_one(language: str) -> None:
    for block in check_page.blocks(language):
        check_commands(block)


def check_commands(block: str) -> None:
    """Parse each `dream check ...` as the command line would."""
    for found in re.findall(r"dream check( -[^\n>|<'\"`]*)", block):
        arguments = shlex.split(found.replace("\\ ", " "))
        command("check").make_context("check", arguments)


def test_an_editor_starts_a_command_that_there_is() -> None:
    (client,) = check_page.blocks("lua")
    assert re.search(r'cmd = \{ "dream", "lsp" \}', client)
    _, helix = map(tomllib.loads, check_page.blocks("toml"))
    server = helix["language-server"]["dream"]
    assert (server["command"], server["args"]) == ("dream", ["lsp"])
    assert "dream" in helix["language"][0]["language-servers"]
    assert command("lsp").make_context("lsp", []).params == {"tcp": None}


def test_lines_are_as_the_editors_expect_them() -> None:
    (task,) = check_page.blocks("json")
    matcher = json.loads(task)["tasks"][0]["problemMatcher"]["pattern"]
    (shown,) = [
        found["output"]
        for found in check_page.CONSOLE.finditer(section("Formats"))
        if found["command"] == "check --output-format concise"
    ]
    *lines, closing = shown.strip().split("\n")
    assert len(lines) == 4 and not re.match(matcher["regexp"], closing)
    found = [re.match(matcher["regexp"], line) for line in lines]
    assert {each[matcher["severity"]] for each in found if each} == {"error", "warning", "info"}
    assert {each and each[matcher["file"]] for each in found} == {"train.py"}
