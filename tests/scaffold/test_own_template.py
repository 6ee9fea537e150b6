"""`dream new --template`: templates of the user's own run no code unless she trusts them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

QUESTIONS = "width: {type: int, default: 2}\n"
TRAIN = "from dream_trainer import DreamTrainer\n\nWIDTH = {{ width }}\n"


@pytest.fixture
def template(tmp_path: Path) -> Path:
    """A template of two files and one question."""
    folder = tmp_path / "template"
    folder.mkdir()
    (folder / "copier.yml").write_text(QUESTIONS)
    (folder / "train.py.jinja").write_text(TRAIN)
    (folder / "notes.md").write_text("as it is {{ width }}\n")
    return folder


def new(folder: Path, *words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "dream_scaffold", "new", *map(str, words)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_it_is_rendered_gets_the_runtime_and_a_commit(template: Path, tmp_path: Path) -> None:
    done = new(tmp_path, "mine", "--template", template, "--data", "width=7")
    project = tmp_path / "mine"
    assert "WIDTH = 7" in (project / "train.py").read_text()
    assert (project / "notes.md").read_text() == "as it is {{ width }}\n"
    assert (project / "dream_trainer" / "contract.py").is_file()
    assert "The training runtime was put in" in done.stdout
    log = subprocess.run(["git", "log", "--oneline"], cwd=project, capture_output=True, text=True)
    assert len(log.stdout.splitlines()) == 1


def test_a_template_without_the_runtime_in_mind_gets_none(tmp_path: Path) -> None:
    folder = tmp_path / "template"
    folder.mkdir()
    (folder / "copier.yml").write_text("")
    (folder / "main.py").write_text("print(1)\n")
    report = json.loads(new(tmp_path, "mine", "--template", folder, "--json").stdout)
    assert report["files"] == ["main.py"] and report["runtime_added"] is False
    assert report["version"] == 1 and report["check"] == ""


def test_a_repository(template: Path, tmp_path: Path) -> None:
    who = ["-c", "user.name=one", "-c", "user.email=one@localhost"]
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "all"]):
        subprocess.run(["git", *words], cwd=template, check=True)
    new(tmp_path, "mine", "--template", template.as_uri(), "--no-git")
    assert "WIDTH = 2" in (tmp_path / "mine" / "train.py").read_text()
    missing = (tmp_path / "nowhere").as_uri()
    done = new(tmp_path, "other", "--template", missing, code=2)
    assert "could not be" in done.stderr and "other" not in left(tmp_path)


CODE = {
    "a task": "_tasks: [\"touch '{marker}'\"]\n",
    "a task as words": "_tasks: [[touch, '{marker}']]\n",
    "a task with a condition": "_tasks: [{{command: \"touch '{marker}'\", when: 'true'}}]\n",
}


@pytest.mark.parametrize("setting", CODE.values(), ids=CODE)
def test_tasks_run_for_who_trusts_alone(template: Path, tmp_path: Path, setting: str) -> None:
    marker = tmp_path / "ran"
    with (template / "copier.yml").open("a") as file:
        file.write(setting.format(marker=marker))
    before = left(tmp_path)
    done = new(tmp_path, "mine", "--template", template, code=2)
    assert "The template runs code of its own: task: touch" in done.stderr
    assert "add --trust" in done.stderr
    new(tmp_path, "mine", "--template", template, "--pretend", "--trust")
    assert left(tmp_path) == before
    new(tmp_path, "mine", "--template", template, "--trust")
    assert marker.exists()


def test_what_tasks_print_is_not_between_the_lines_of_json(template: Path, tmp_path: Path) -> None:
    with (template / "copier.yml").open("a") as file:
        file.write("_tasks: ['echo said']\n")
    done = new(tmp_path, "mine", "--template", template, "--trust", "--json")
    assert json.loads(done.stdout)["project"] == str(tmp_path / "mine")
    assert "said" in done.stderr


def test_extensions_of_jinja_are_code(template: Path, tmp_path: Path) -> None:
    with (template / "copier.yml").open("a") as file:
        file.write("_jinja_extensions: [jinja2.ext.do]\n")
    done = new(tmp_path, "mine", "--template", template, code=2)
    assert "jinja extension: jinja2.ext.do" in done.stderr
    new(tmp_path, "mine", "--template", template, "--trust")


def test_nothing_is_written_outside(template: Path, tmp_path: Path) -> None:
    (template / "copier.yml").write_text("width: {type: str, default: '../../out'}\n")
    (template / "{{ width }}.txt.jinja").write_text("out\n")
    before = left(tmp_path)
    new(tmp_path, "mine", "--template", template, code=2)
    assert left(tmp_path) == before


def test_what_is_there_stays_without_force(template: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "train.py").write_text("mine\n")
    new(tmp_path, "mine", "--template", template, code=2)
    assert left(mine) == {"train.py"} and (mine / "train.py").read_text() == "mine\n"
    shown = json.loads(new(tmp_path, "mine", "--template", template, "--pretend", "--json").stdout)
    assert shown["replaced"] == ["train.py"] and left(mine) == {"train.py"}
    done = new(tmp_path, "mine", "--template", template, "--force")
    assert "Replaced: train.py." in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mine", "--template", "nowhere"], "There is no folder nowhere."),
        (["mine", "--template", "."], ". is no template: there is no copier.yml in it."),
        (["mine", "--template", "template", "--parallel", "fsdp"], "--parallel is a question of"),
        (["mine", "--template", "template", "--docker"], "--docker is a question of"),
        (["--template", "template"], "PATH is missing."),
        (["mine", "--trust"], "--trust is for a template of your own."),
        (["mine", "--data", "a=1"], "--data is for a template of your own."),
        (["mine", "--template", "template", "--data", "width"], "--data width has no value."),
        (["mine", "--template", "template", "--data", "width=wide"], "could not be rendered"),
        (["mine", "--template", "template", "--data-file", "nowhere.yml"], "cannot be read"),
    ],
)
def test_refusals(template: Path, tmp_path: Path, words: list[str], said: str) -> None:
    before = left(tmp_path)
    assert said in new(tmp_path, *words, code=2).stderr
    assert left(tmp_path) == before


def test_answers_of_a_file(template: Path, tmp_path: Path) -> None:
    (tmp_path / "answers.yml").write_text("width: 5\n")
    new(tmp_path, "mine", "--template", template, "--data-file", "answers.yml", "--no-git")
    assert "WIDTH = 5" in (tmp_path / "mine" / "train.py").read_text()


def test_update_leaves_it_to_copier(template: Path, tmp_path: Path) -> None:
    (template / "{{ _copier_conf.answers_file }}.jinja").write_text(
        "{{ _copier_answers|to_nice_yaml -}}\n"
    )
    new(tmp_path, "mine", "--template", template)
    done = subprocess.run(
        [sys.executable, "-m", "dream_scaffold", "update"],
        cwd=tmp_path / "mine",
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "Run: copier update" in done.stderr


def repository_of(template: Path, marker: Path) -> None:
    """Make the template write a `.git` whose settings name a command."""
    (template / "copier.yml").write_text("_exclude: [copier.yml]\nd: {type: str, default: .git}\n")
    folder = template / "{{ d }}"
    folder.mkdir()
    command = f"touch '{marker}'; false"
    (folder / "config").write_text(f'[core]\n\tfsmonitor = "{command}"\n')


def test_a_repository_that_a_template_writes_is_code(template: Path, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    repository_of(template, marker)
    before = left(tmp_path)
    for words in (["--pretend"], ["--no-git"], []):
        done = new(tmp_path, "mine", "--template", template, *words, code=2)
        assert "writes .git, and git runs code that is named there" in done.stderr
        assert left(tmp_path) == before
    done = new(tmp_path, "mine", "--template", template, "--trust")
    assert "the template has made a repository of its own" in done.stdout
    assert not marker.exists()


def test_migrations_are_code_of_a_later_day(template: Path, tmp_path: Path) -> None:
    with (template / "copier.yml").open("a") as file:
        file.write('_migrations: [{version: v2, command: "echo \\e[2K"}]\n')
    done = new(tmp_path, "mine", "--template", template, code=2)
    assert "migration, at copier update: echo \\x1b[2K." in done.stderr
    assert left(tmp_path) == {"template"}


def test_files_that_python_cannot_read_are_no_hindrance(template: Path, tmp_path: Path) -> None:
    (template / "broken.py").write_text("def (\n")
    (template / "binary.py").write_bytes(b"\0\xff")
    done = new(tmp_path, "mine", "--template", template, "--no-git")
    assert "  binary.py\n  broken.py\n" in done.stdout
    assert "It could not be checked: " in done.stdout


def test_a_project_inside_of_its_template(template: Path, tmp_path: Path) -> None:
    for words in ([], ["--pretend"]):
        done = new(tmp_path, template / "mine", "--template", template, *words, code=2)
        assert "lies in the template" in done.stderr
    assert left(template) == {"copier.yml", "notes.md", "train.py.jinja"}


def test_update_and_add_say_what_it_is_anywhere_inside(template: Path, tmp_path: Path) -> None:
    (template / "{{ _copier_conf.answers_file }}.jinja").write_text(
        "{{ _copier_answers|to_nice_yaml -}}\n"
    )
    project = tmp_path / "mine"
    new(tmp_path, "mine", "--template", template, "--no-git")
    (project / "inner").mkdir()
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    for words in (["update", "inner"], ["add", "callback", "Seen"], ["add", "launch", "slurm"]):
        done = subprocess.run(
            [sys.executable, "-m", "dream_scaffold", *words],
            cwd=project,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 2, done.stdout
        assert f"{project} was made from a template that is not of dream." in done.stderr
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before
