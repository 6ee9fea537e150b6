"""The rendered projects, once a session, and their modules, imported afresh."""

import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from permutations import places, render_all

collect_ignore = ["golden"]

OF_A_PROJECT = ("config", "data", "model", "train", "dream_trainer")


@pytest.fixture(scope="session")
def projects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Permutation -> its project: rendered by the first worker, copied by the others."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    master = shared / "rendered-projects"
    with (shared / "rendered-projects.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not master.exists():
            master.with_suffix(".new").mkdir()
            render_all(master.with_suffix(".new"))
            master.with_suffix(".new").rename(master)
    own = tmp_path_factory.mktemp("projects")
    shutil.copytree(master, own, dirs_exist_ok=True, symlinks=True)
    return places(own)


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
