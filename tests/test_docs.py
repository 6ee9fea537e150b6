"""The pages name what there is."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from dream_trainer import callbacks
from dream_trainer.utils.cli import COMMANDS
from dream_trainer.utils.modifiers import MODIFIERS
from tests.runtime.tiny import Batch, TinyTrainer, batches, config

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
def test_python_is_python(path: Path) -> None:
    for block in re.findall(r"```python\n(.*?)```", path.read_text(), re.S):
        # A block is a script, or some keywords of a call.
        ast.parse(f"f({block})" if re.match(r"\w+=", block) else block)


class Flat(TinyTrainer):
    """Learns nothing that its validation sees."""

    def validation_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        return {"val/loss": 1.0}


def test_the_callback_of_the_page_works() -> None:
    blocks = re.findall(r"```python\n(.*?)```", page("callbacks.md"), re.S)
    space: dict[str, Any] = {}
    exec(next(block for block in blocks if "class StopOnPlateau" in block), space)
    stop = space["StopOnPlateau"](patience=2)
    trainer = Flat(config(None, [stop], n_epochs=20), train=batches(2), val=batches(1))
    trainer.fit()
    assert trainer.epoch == 3, "the first is the best, and two more bring nothing"
    assert stop.state_dict() == {"best": 1.0, "since": 2}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text())
    assert [t for t in links if "://" not in t and not (path.parent / t).exists()] == []
