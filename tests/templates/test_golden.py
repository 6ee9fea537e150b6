"""The template's output, byte for byte. After a change: `make golden`, then read the diff."""

from pathlib import Path

import pytest
from permutations import GOLDEN, PERMUTATIONS, text_files


@pytest.mark.parametrize("name", PERMUTATIONS)
def test_a_project_equals_its_golden(projects: dict[str, Path], name: str) -> None:
    made, golden = text_files(projects[name]), text_files(GOLDEN / name)
    assert made.keys() == golden.keys()
    for path, text in made.items():
        assert text == golden[path], f"{name}/{path}"


def test_every_golden_has_its_permutation() -> None:
    assert {folder.name for folder in GOLDEN.iterdir()} == PERMUTATIONS.keys()
