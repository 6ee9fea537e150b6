"""What docs/check.md shows of `dream check`, made by running it; as a script, it renews it."""

import re
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

from typer.testing import CliRunner

from dream_scaffold.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "check.md"
CONSOLE = re.compile(r"```console\n\$ dream (?P<command>[^\n]*)\n(?P<output>.*?)```", re.S)
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)
FILES = ("config.py", "train.py")
"""The first blocks of Python, in their order."""


def blocks(language: str) -> list[str]:
    """The code of one language that the page holds."""
    text = PAGE.read_text(encoding="utf-8")
    return [code for found, code in re.findall(FENCED, text) if found == language]


def files() -> Iterator[tuple[str, str]]:
    """The project of the page: the name and the text of each of its files."""
    yield from zip(FILES, blocks("python"), strict=False)


def page() -> str:
    """The page with the output of every command as it is now."""
    text = PAGE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for name, source in files():
            Path(name).write_text(source, encoding="utf-8")
        return CONSOLE.sub(lambda found: _shown(found["command"]), text)


def _shown(command: str) -> str:
    done = CliRunner().invoke(app, command.split(), catch_exceptions=False)
    return f"```console\n$ dream {command}\n{done.output.rstrip()}\n```"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8", newline="\n")
