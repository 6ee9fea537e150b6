"""The pages name what there is."""

import re
from pathlib import Path

import pytest

from dream_trainer import callbacks
from dream_trainer.utils.cli import COMMANDS
from dream_trainer.utils.modifiers import MODIFIERS

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def test_every_callback_is_on_its_page() -> None:
    bases = {"Callback", "CallbackCollection", "RankZeroCallback"}
    table = set(re.findall(r"`(\w+)`", page("callbacks.md").partition("## Your own")[0]))
    assert set(callbacks.__all__) - bases <= table
    for name in callbacks.__all__:
        assert getattr(callbacks, name).__doc__


def test_every_command_and_option_is_on_its_page() -> None:
    text = page("training-cli.md")
    assert [name for name in COMMANDS if f"`{name}" not in text] == []
    assert [flag for flag in MODIFIERS if f"`{flag}" not in text] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text())
    assert [t for t in links if "://" not in t and not (path.parent / t).exists()] == []
