"""`dream dry-run`: which python it runs, and what it says where there is none to run."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dream_scaffold.cli import app
from dream_scaffold.errors import DreamError
from dream_scaffold.project.rehearse import dry_run, project_python

HAS_TORCH = 'test "$1" = -c && exit 0\n'
LACKS_TORCH = 'test "$1" = -c && exit 1\n'


def python(environment: Path, script: str) -> Path:
    """An environment whose python is a shell script."""
    path = environment / "bin" / "python"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(0o755)
    return path


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("")
    monkeypatch.chdir(folder)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    return folder


class TestPython:
    def test_this_one_where_there_is_no_other(self, project: Path) -> None:
        assert project_python(project) == sys.executable

    def test_the_active_one(
        self, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        active = python(tmp_path / "active", "")
        monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "active"))
        assert project_python(project) == str(active)

    def test_the_nearest_before_the_active_one(
        self, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        python(tmp_path / "active", "")
        monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "active"))
        above = python(tmp_path / ".venv", "")
        assert project_python(project) == str(above)
        own = python(project / ".venv", "")
        assert project_python(project) == str(own)


class TestRun:
    def test_arguments_and_exit_code_pass(
        self, project: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        python(project / ".venv", f'{HAS_TORCH}echo "$@"; exit 1\n')
        result = CliRunner().invoke(app, ["dry-run", "--world-size", "8", "--help", "--set=a=b"])
        assert result.exit_code == 1
        assert capfd.readouterr().out == "train.py dry-run --world-size 8 --help --set=a=b\n"

    def test_another_script(self, project: Path, capfd: pytest.CaptureFixture[str]) -> None:
        python(project / ".venv", f'{HAS_TORCH}echo "$@"\n')
        (project / "finetune.py").write_text("")
        assert dry_run(["finetune.py", "--rank=1"]) == 0
        assert capfd.readouterr().out == "finetune.py dry-run --rank=1\n"

    def test_no_script(self, project: Path) -> None:
        with pytest.raises(DreamError) as caught:
            dry_run(["other.py", "--world-size=2"])
        assert (caught.value.fact, caught.value.remedy) == (
            "There is no other.py here.",
            "Run it in the project's folder, or name the script: dream dry-run my-lm/train.py",
        )

    def test_no_torch(self, project: Path) -> None:
        without = python(project / ".venv", LACKS_TORCH)
        with pytest.raises(DreamError) as caught:
            dry_run(["--world-size=2"])
        assert (caught.value.fact, caught.value.remedy) == (
            f"A dry run needs torch, which {without} does not have.",
            "Install the project into its environment, or activate the one that has torch.",
        )
