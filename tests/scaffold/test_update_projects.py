"""Real projects through `dream update`: a new one is current, an edited one keeps its edits."""

import subprocess
import sys
from pathlib import Path

import pytest

from dream_scaffold.check import Options as CheckOptions
from dream_scaffold.check import check
from dream_scaffold.project.new import create
from dream_scaffold.project.options import Options
from dream_scaffold.project.recipes import RECIPES
from dream_scaffold.project.update.run import take_back, update


def made(folder: Path, recipe: str, parallel: str, **answers: bool) -> Path:
    options = Options(name="mine", recipe=recipe, parallel=parallel, **answers)
    create(folder / "mine", options, git=False)
    return folder / "mine"


def texts(project: Path) -> dict[str, bytes]:
    return {
        path.relative_to(project).as_posix(): path.read_bytes()
        for path in project.rglob("*")
        if path.is_file() and "undo" not in path.parts
    }


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("parallel", ["single", "hsdp"])
def test_a_new_project_is_up_to_date(tmp_path: Path, recipe: str, parallel: str) -> None:
    project = made(tmp_path, recipe, parallel, compile=parallel == "hsdp")
    before = texts(project)
    assert update(project, {}).is_current
    assert texts(project) == before


def test_a_mode_is_added_to_an_edited_project(tmp_path: Path) -> None:
    project = made(tmp_path, "lm", "fsdp")
    train, config = project / "train.py", project / "config.py"
    mine = "        # Mine: say what is learnt.\n"
    text = train.read_text()
    at = text.index("        self.backward(loss)")
    train.write_text(text[:at] + mine + text[at:])
    config.write_text(config.read_text().replace("dim: int = 128", "dim: int = 256"))
    before = texts(project)
    done = update(project, {"parallel": "fsdp+tp"})
    assert done.conflicts == 0
    assert mine in train.read_text() and "def apply_tensor_parallel" in train.read_text()
    assert "dim: int = 256" in config.read_text() and "def fsdp_tp_config" in config.read_text()
    findings = check(CheckOptions(paths=(str(project),), strict=True)).findings
    assert [str(finding) for finding in findings] == []
    assert update(project, {}).is_current
    take_back(project)
    assert texts(project) == before


def test_the_command_says_what_it_did(tmp_path: Path) -> None:
    project = made(tmp_path, "blank", "ddp")
    train = project / "train.py"
    train.write_text(
        train.read_text().replace("class Trainer(DreamTrainer):", "class T(DreamTrainer):")
    )

    def dream(*arguments: str, code: int) -> str:
        command = [sys.executable, "-m", "dream_scaffold", "update", *arguments]
        done = subprocess.run(command, cwd=project, capture_output=True, text=True)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    assert "up to date" in dream(code=0)
    told = dream("--parallel", "fsdp", "--dry-run", "--diff", code=0)
    assert "Nothing was changed" in told and "+def fsdp_config" in told
    assert "parallel ddp -> fsdp" in told
    assert '"verdict": "merged"' in dream("--parallel", "fsdp", "--json", code=0)
    assert "taken back" in dream("--abort", code=0)
    assert "no update to take back" in dream("--abort", code=2)
    assert "no .dream/answers.yml" in dream("..", code=2)
