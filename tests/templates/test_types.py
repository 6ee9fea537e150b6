"""A type checker finds nothing in a new project. One cache serves all of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from permutations import PERMUTATIONS


@pytest.mark.parametrize("name", PERMUTATIONS)
def test_mypy_finds_nothing(
    projects: dict[str, Path], name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cache = tmp_path_factory.getbasetemp() / "mypy"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", os.fspath(cache)],
        cwd=projects[name],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
