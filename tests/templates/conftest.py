"""The rendered projects, once a session, and their modules, imported afresh."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from permutations import render_all

collect_ignore = ["golden"]

OF_A_PROJECT = ("config", "data", "model", "train", "dream_trainer")


@pytest.fixture(scope="session")
def projects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Permutation -> its project."""
    return render_all(tmp_path_factory.mktemp("projects"))


@pytest.fixture
def lm(projects: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The modules `config`, `data` and `model` of recipe lm."""
    project = projects["lm-single"]

    def of_a_project() -> set[str]:
        return {name for name in sys.modules if name.partition(".")[0] in OF_A_PROJECT}

    before = {name: sys.modules.pop(name) for name in of_a_project()}
    monkeypatch.syspath_prepend(project)
    yield SimpleNamespace(**{name: import_module(name) for name in ("config", "data", "model")})
    for name in of_a_project():
        del sys.modules[name]
    sys.modules |= before
