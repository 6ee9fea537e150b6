"""`dream new` from the command line: what it makes, what it says, what it refuses."""

import io
import os
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from dream_scaffold import cli
from dream_scaffold.project import report
from dream_scaffold.project.git import repository_around
from dream_scaffold.project.new import create
from dream_scaffold.project.options import Options

Dream = Callable[..., tuple[int, str, str]]

FILES = {
    ".gitignore",
    "AGENTS.md",
    "README.md",
    "config.py",
    "data.py",
    "llms.txt",
    "model.py",
    "pyproject.toml",
    "tests/test_project.py",
    "train.py",
}


@pytest.fixture
def dream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Dream:
    """Runs the command in `tmp_path`, without a terminal; gives (exit code, out, err)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    # Above `tmp_path` there may be a repository; these tests are not about that one.
    monkeypatch.setattr(
        "dream_scaffold.project.git.repository_around",
        lambda folder: (
            around
            if (around := repository_around(folder)) and around.is_relative_to(tmp_path)
            else None
        ),
    )

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["dream", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run


def files(folder: Path) -> dict[str, bytes]:
    """Every file below `folder` but git's."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".git" not in path.parts
    }


def git(*arguments: str, folder: Path) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=True)
    return done.stdout.decode()


def test_it_makes_a_committed_project_and_says_what_is_next(dream: Dream, tmp_path: Path) -> None:
    code, out, err = dream("new", "my-lm", "--parallel", "fsdp")
    assert (code, err) == (0, "")
    assert out.startswith(
        "my-lm/\n  .dream/\n  .gitignore\n  AGENTS.md\n  README.md\n  config.py  "
    )
    assert "\nEverything is committed to a new git repository.\n" in out
    assert out.endswith(
        "Next:\n  cd my-lm\n  torchrun --nproc-per-node=2 train.py\n  dream check\n"
    )
    assert os.listdir(tmp_path) == ["my-lm"]
    project = tmp_path / "my-lm"
    own = {name for name in files(project) if not name.startswith((".dream/", "dream_trainer/"))}
    assert own == FILES
    assert git("status", "--short", "--ignored", folder=project) == ""
    assert git("log", "--format=%s", folder=project) == "Start from Dream Scaffold\n"


def test_the_snapshot_holds_what_an_update_will_need(dream: Dream, tmp_path: Path) -> None:
    dream("new", "my-lm", "--parallel", "hsdp", "--compile", "--no-git")
    made = files(tmp_path / "my-lm")
    assert made[".dream/answers.yml"].decode() == (
        '# What this project was made from.\ntemplate: "0.1.0"\nname: my-lm\n'
        "parallel: hsdp\nrecipe: lm\ncompile: true\nckpt_acts: false\n"
        "tracker: none\nlaunch: torchrun\nci: none\ndocker: false\nlicense: none\n"
    )
    base = {name.removeprefix(".dream/base/") for name in made if name.startswith(".dream/base/")}
    assert base == FILES
    assert all(made[name] == made[f".dream/base/{name}"] for name in FILES)
    rows = [row.split("  ") for row in made[".dream/hashes.sha256"].decode().splitlines()]
    assert dict(map(reversed, rows)) == {
        name: sha256(text).hexdigest()
        for name, text in made.items()
        if not name.startswith(".dream/")
    }


def test_no_git_makes_no_repository(dream: Dream, tmp_path: Path) -> None:
    code, out, _ = dream("new", "my-lm", "--parallel", "single", "--no-git")
    assert code == 0
    assert "\nNo git repository was made.\n" in out
    assert not (tmp_path / "my-lm/.git").exists()


def test_inside_a_repository_none_is_nested(dream: Dream, tmp_path: Path) -> None:
    git("init", "--quiet", folder=tmp_path)
    before = files(tmp_path / ".git")
    code, out, _ = dream("new", "my-lm", "--parallel", "ddp")
    assert code == 0
    assert f"No commit was made: {tmp_path} is a git repository already." in out
    assert not (tmp_path / "my-lm/.git").exists()
    assert files(tmp_path / ".git") == before


def test_without_git_there_is_a_project_all_the_same(
    dream: Dream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dream_scaffold.project.git.shutil.which", lambda name: None)
    code, out, _ = dream("new", "my-lm", "--parallel", "ddp")
    assert code == 0
    assert "\nNo commit was made: git is not installed.\n" in out
    assert (tmp_path / "my-lm/train.py").exists()


def test_the_first_commit_needs_no_identity(
    dream: Dream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(variable, os.devnull)
    for variable in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "EMAIL"):
        monkeypatch.delenv(variable, raising=False)
    dream("new", "my-lm", "--parallel", "ddp")
    project = tmp_path / "my-lm"
    assert git("log", "--format=%an <%ae>", folder=project) == "dream new <dream@localhost>\n"
    assert "[user]" not in (project / ".git/config").read_text()


def test_the_first_commit_bears_the_users_name(
    dream: Dream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "gitconfig"
    own.write_text("[user]\nname = Ada\nemail = ada@example.org\n[commit]\ngpgsign = true\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(own))
    dream("new", "my-lm", "--parallel", "ddp")
    author = git("log", "--format=%an <%ae>", folder=tmp_path / "my-lm")
    assert author == "Ada <ada@example.org>\n"


def test_a_git_that_fails_does_not_fail_the_project(
    dream: Dream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "gitconfig"
    broken.write_text("[user\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(broken))
    code, out, _ = dream("new", "my-lm", "--parallel", "ddp")
    assert code == 0
    assert "No commit was made: git says 'fatal: bad config line" in out
    assert not (tmp_path / "my-lm/.git").exists()


REFUSALS = {
    "new": (
        "PATH and --parallel are missing, and there is no terminal to ask on.",
        "Run: dream new my-project --parallel fsdp",
    ),
    "new my-lm": (
        "--parallel is missing, and there is no terminal to ask on.",
        "Run: dream new my-lm --parallel fsdp",
    ),
    "new my-lm --recipe blank --compile": (
        "--parallel is missing, and there is no terminal to ask on.",
        "Run: dream new my-lm --recipe blank --compile --parallel fsdp",
    ),
    "new --defaults": (
        "PATH is missing, and --defaults asks nothing.",
        "Run: dream new --defaults my-project",
    ),
    "new my-lm --parallel fdsp": (
        "--parallel fdsp is unknown.",
        "Did you mean fsdp? Known are single, ddp, fsdp, hsdp, cp, tp, pp, "
        "alone or joined, such as fsdp+tp.",
    ),
    "new my-lm --parallel x": (
        "--parallel x is unknown.",
        "Use one of single, ddp, fsdp, hsdp, cp, tp, pp, alone or joined, such as fsdp+tp.",
    ),
    "new my-lm --parallel ddp+tp": (
        "--parallel ddp+tp: "
        "tensor_parallel=2 beside replicated data parallelism averages wrong gradients.",
        "Use fsdp+tp or hsdp+tp.",
    ),
    "new my-lm --parallel ddp --recipe llm": (
        "--recipe llm is unknown.",
        "Did you mean lm? Known are lm, vision, gan, finetune, blank.",
    ),
    "new json --parallel ddp": (
        "'json' cannot name a project: it is the name of a module of Python's standard library.",
        "Choose another one, such as my-json.",
    ),
    "new a/b/my-lm --parallel ddp": (
        "There is no folder {here}/a/b to make my-lm in.",
        "Create it first: mkdir -p {here}/a/b",
    ),
    "new full --parallel ddp": (
        "{here}/full exists and is not empty.",
        "Choose another path, or add the project to this folder with --force, "
        "which replaces the files that have the name of a new one.",
    ),
    "new file --parallel ddp": (
        "{here}/file exists and is not a folder.",
        "Choose another path.",
    ),
    "new dangling --parallel ddp --force": (
        "{here}/dangling exists and is a symbolic link to nothing.",
        "Choose another path.",
    ),
    "new blocked --parallel ddp --force": (
        "{here}/blocked/tests is in the way: the project has a folder of that name.",
        "Move it away, or choose another path.",
    ),
    "new linked --parallel ddp --force": (
        "{here}/linked/tests is in the way: the project has a folder of that name.",
        "Move it away, or choose another path.",
    ),
}


@pytest.mark.parametrize("command", REFUSALS)
def test_refusals_say_why_and_write_nothing(dream: Dream, tmp_path: Path, command: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked/tests").write_text("mine")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/tests").symlink_to(tmp_path / "full")
    before = files(tmp_path)
    fact, remedy = (text.format(here=tmp_path) for text in REFUSALS[command])
    code, out, err = dream(*command.split())
    assert (code, out, err) == (2, "", f"error: {fact}\nhelp: {remedy}\n")
    assert files(tmp_path) == before
    assert len(os.listdir(tmp_path)) == 5


def test_no_permission_is_said_before_anything_is_written(
    dream: Dream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    code, _, err = dream("new", "my-lm", "--parallel", "ddp")
    assert code == 2
    assert err == (
        f"error: You have no permission to write in {tmp_path}.\n"
        "help: Choose another path, or ask for that permission.\n"
    )
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file system that refuses")
def test_a_file_system_that_refuses_is_named(dream: Dream) -> None:
    code, out, err = dream("new", "/proc/my-lm", "--parallel", "ddp")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert "/proc" in err.splitlines()[0]


def test_force_adds_to_a_folder_and_says_what_it_replaced(dream: Dream, tmp_path: Path) -> None:
    folder = tmp_path / "my-lm"
    (folder / "tests").mkdir(parents=True)
    mine = {"notes.txt": b"mine", "tests/test_mine.py": b"mine"}
    for name, text in {**mine, "train.py": b"old", "tests/test_project.py": b"old"}.items():
        (folder / name).write_bytes(text)
    code, out, _ = dream("new", "my-lm", "--parallel", "ddp", "--force", "--no-git")
    assert code == 0
    assert "\nReplaced: tests/test_project.py, train.py.\n" in out
    made = files(folder)
    assert {name: made[name] for name in mine} == mine
    assert made["train.py"] == made[".dream/base/train.py"]
    assert os.listdir(tmp_path) == ["my-lm"]


def test_an_empty_folder_needs_no_force(
    dream: Dream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my-lm").mkdir()
    monkeypatch.chdir(tmp_path / "my-lm")
    code, out, _ = dream("new", ".", "--parallel", "single")
    assert code == 0
    assert out.endswith("Next:\n  python train.py\n  dream check\n")
    assert files(Path.cwd()).keys() >= FILES
    assert git("status", "--short", folder=Path.cwd()) == ""


def test_defaults_ask_nothing(dream: Dream, tmp_path: Path) -> None:
    assert dream("new", "my-lm", "--defaults", "--no-git")[0] == 0
    answers = (tmp_path / "my-lm/.dream/answers.yml").read_text()
    assert "parallel: fsdp\nrecipe: lm\ncompile: false\nckpt_acts: false\n" in answers


def test_without_torch_the_next_command_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    created = create(tmp_path / "my-lm", Options(name="my-lm", parallel="single"), git=False)
    monkeypatch.setattr(report, "missing_packages", lambda project: ["torch"])
    assert report.describe(created, "my-lm").endswith(
        "Next:\n  cd my-lm\n  pip install -e .\n  python train.py\n  dream check"
    )


def test_a_path_that_leads_out_of_a_repository_is_not_in_it(
    dream: Dream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "repository"
    inside.mkdir()
    git("init", "--quiet", folder=inside)
    monkeypatch.chdir(inside)
    dream("new", "../my-lm", "--parallel", "single")
    assert (tmp_path / "my-lm" / ".git").is_dir()
