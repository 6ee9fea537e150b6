"""The `dream` command as a process: quick to start, asks on a terminal, never without one."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dream_scaffold import __version__

ROOT = Path(__file__).parents[2]
ENV = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"}
DREAM = [sys.executable, "-m", "dream_scaffold"]
SLOW = {"torch", "copier", "jinja2", "rich", "pydantic", "numpy", "yaml", "plumbum"}


def dream(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DREAM, *arguments],
        cwd=folder,
        env=ENV,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_version() -> None:
    assert dream("--version").stdout == f"dream {__version__}\n"


def test_help_names_every_command() -> None:
    out = dream("--help").stdout
    assert re.findall(r"^  (\w[\w-]*)  ", out, re.MULTILINE) == [
        "new",
        "dry-run",
        "update",
        "check",
        "explain",
        "lsp",
        "doctor",
        "add",
    ]


def test_an_unknown_option_exits_with_2() -> None:
    assert dream("new", "my-lm", "--fast").returncode == 2


@pytest.mark.parametrize("arguments", [["--help"], ["new", "--help"], ["check", "{project}"]])
def test_only_what_is_needed_is_imported(arguments: list[str], tmp_path: Path) -> None:
    """`dream --help` and `dream check` must not pay for what `dream new` uses."""
    if "check" in arguments:
        dream("new", "my-lm", "--parallel", "fsdp", "--no-git", folder=tmp_path)
    code = (
        "import sys\nfrom dream_scaffold.cli import main\n"
        "try: main()\nexcept SystemExit as ended: code = ended.code\n"
        "print(code, *sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *(each.format(project="my-lm") for each in arguments)],
        cwd=tmp_path,
        env=ENV,
        capture_output=True,
        text=True,
    )
    code_and_modules = done.stderr.split()
    assert code_and_modules[0] == "0", done.stdout
    assert not SLOW.intersection(code_and_modules)


def on_a_terminal(
    folder: Path, *arguments: str, answers: list[tuple[str, bytes]]
) -> tuple[int, str]:
    """Run `dream` on a terminal of its own; each answer waits for its question."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # A job in the background ignores it.
        os.execve(sys.executable, [*DREAM, *arguments], ENV | {"TERM": "xterm"})
    said, waiting, seen, deadline = b"", list(answers), 0, time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                chunk = os.read(terminal, 4096)
            except OSError:
                break
            if not chunk:
                break
            said += chunk
            if b"\x1b[6n" in chunk:  # "Where is the cursor?"
                os.write(terminal, b"\x1b[1;1R")
            if waiting and (at := said.find(waiting[0][0].encode(), seen)) >= 0:
                seen = at + len(waiting[0][0])
                os.write(terminal, waiting.pop(0)[1])
    _, status = os.waitpid(process, 0)
    os.close(terminal)
    assert not waiting, said.decode()
    return os.waitstatus_to_exitcode(status), said.decode().replace("\r\n", "\n")


DOWN = b"\x1b[B"


def recorded(project: Path) -> str:
    return (project / ".dream/answers.yml").read_text()


def test_a_terminal_is_asked_for_what_is_missing(tmp_path: Path) -> None:
    answers = [
        ("Folder of the new project:", b"my-lm\r"),
        ("What does it start from?", DOWN + b"\r"),
        ("How is a run laid out?", DOWN + b"\r"),
        ("Where do logs go?", DOWN * 2 + b"\r"),
    ]
    code, said = on_a_terminal(tmp_path, "new", "--no-git", answers=answers)
    assert code == 0, said
    assert "The usual choice" in said  # The advice on what the cursor is on.
    answers = recorded(tmp_path / "my-lm")
    assert "parallel: hsdp\nrecipe: vision\n" in answers and "tracker: tensorboard\n" in answers


def test_a_combination_is_written_and_judged_at_once(tmp_path: Path) -> None:
    answers = [
        ("How is a run laid out?", b"\x1b[A" * 3 + b"\r"),
        ("Which, joined by +?", b"ddp+tpp\r"),
        ("Did you mean tp?", b"\x7f\x7f\x7fpp\r"),
        ("Where do logs go?", b"\r"),
    ]
    code, said = on_a_terminal(
        tmp_path, "new", "my-lm", "--recipe", "lm", "--no-git", answers=answers
    )
    assert code == 0, said
    assert "parallel: ddp+pp\nrecipe: lm\n" in recorded(tmp_path / "my-lm")


def test_a_terminal_is_not_asked_when_all_is_said(tmp_path: Path) -> None:
    code, said = on_a_terminal(
        tmp_path, "new", "my-lm", "--parallel", "ddp", "--no-git", answers=[]
    )
    assert code == 0
    assert said.startswith("my-lm/\n")


def test_ctrl_c_at_a_question_leaves_nothing(tmp_path: Path) -> None:
    answers = [("What does it start from?", b"\x03")]
    code, said = on_a_terminal(tmp_path, "new", "my-lm", answers=answers)
    assert code == 130
    assert said.endswith("interrupted: nothing was left half made\n")
    assert os.listdir(tmp_path) == []


def test_the_list_says_what_each_is_for() -> None:
    from dream_scaffold.project.modes import PARTS
    from dream_scaffold.project.recipes import RECIPES

    told = dream("new", "--list").stdout
    known = json.loads(dream("new", "--list", "--json").stdout)
    assert [recipe["name"] for recipe in known["recipes"]] == list(RECIPES)
    assert [mode["name"] for mode in known["modes"]] == list(PARTS)
    for entry in (*RECIPES.values(), *PARTS.values()):
        assert entry.meaning in told and entry.advice in told


def test_answers_from_a_file_and_options_above_them(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text("parallel: ddp\nrecipe: blank\ncompile: true\n")
    done = dream(
        "new", "mine", "--data-file", "a.yml", "--recipe", "lm", "--no-git", folder=tmp_path
    )
    assert done.returncode == 0, done.stderr
    answers = recorded(tmp_path / "mine")
    assert "parallel: ddp\nrecipe: lm\ncompile: true\n" in answers


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("paralel: ddp\n", "a.yml answers paralel, which nobody asks.\nhelp: Write parallel."),
        ("compile: maybe\n", "compile is 'maybe', and not true or false"),
        ("parallel: [ddp]\n", "parallel is ['ddp'], and no text"),
        ("- ddp\n", "it holds no answers"),
        ("parallel: sideways\n", "--parallel sideways is unknown."),
    ],
)
def test_a_file_of_answers_that_is_wrong(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "a.yml").write_text(text)
    done = dream("new", "mine", "--data-file", "a.yml", "--defaults", folder=tmp_path)
    assert done.returncode == 2 and told in done.stderr
    assert os.listdir(tmp_path) == ["a.yml"]


def test_pretending_writes_nothing(tmp_path: Path) -> None:
    told = dream("new", "mine", "--defaults", "--pretend", folder=tmp_path).stdout
    assert told.startswith("mine/\n") and "Nothing was written" in told
    assert os.listdir(tmp_path) == []
    dream("new", "mine", "--defaults", folder=tmp_path)
    told = dream("new", "mine", "--parallel", "ddp", "--pretend", folder=tmp_path).stdout
    assert "-def fsdp_config() -> Config:" in told and "+def ddp_config() -> Config:" in told
    assert "parallel: fsdp" in recorded(tmp_path / "mine")


def test_json_of_a_new_project(tmp_path: Path) -> None:
    done = dream("new", "mine", "--json", folder=tmp_path)
    made = json.loads(done.stdout)
    assert made["version"] == 1 and made["project"] == str(tmp_path / "mine")
    assert made["answers"]["parallel"] == "fsdp" and made["next"][-1] == "dream check"
    files = [p for p in (tmp_path / "mine").rglob("*") if p.is_file() and ".git" not in p.parts]
    assert len(made["files"]) == len(files)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    env = ENV | {
        "_DREAM_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": "dream ch",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "COMP_WORDS": "dream ch",
        "COMP_CWORD": "1",
    }
    code = "from dream_scaffold.cli import app\napp(prog_name='dream')"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert "check" in done.stdout and "update" not in done.stdout


JSON = {
    "new": ["new", "{there}", "--defaults", "--no-git", "--json"],
    "new --list": ["new", "--list", "--json"],
    "new --pretend": ["new", "{there}", "--defaults", "--pretend", "--json"],
    "update": ["update", "{project}", "--dry-run", "--json"],
    "check --output-format": ["check", "{project}", "--output-format", "json"],
    "check": ["check", "{project}", "--json"],
    "explain": ["explain", "DT201", "--json"],
    "explain, all": ["explain", "--json"],
    "doctor": ["doctor", "{project}", "--no-smoke", "--json"],
    "add": ["add", "callback", "Seen", "--project", "{project}", "--pretend", "--json"],
    "dry-run": ["dry-run", "{project}/train.py", "--world-size", "2", "--json"],
}


def test_every_command_that_tells_something_tells_it_as_json() -> None:
    named = {words[0] for words in JSON.values()}
    shown = re.findall(r"^  (\w[\w-]*)  ", dream("--help").stdout, re.MULTILINE)
    assert named == {name for name in shown if name != "lsp"}


@pytest.mark.parametrize("words", JSON.values(), ids=JSON)
def test_json_is_one_object_and_nothing_else(words: list[str], tmp_path: Path) -> None:
    project = tmp_path / "project"
    places = {"project": project, "there": tmp_path / "there"}
    assert dream("new", str(project), "--parallel", "single", "--no-git").returncode == 0
    done = dream(*(word.format(**places) for word in words))
    assert done.returncode in (0, 1), done.stderr
    assert json.loads(done.stdout)["version"] == 1


BROKEN = {
    "new": ["new", "--json"],
    "new, a name": ["new", "con", "--json"],
    "new, a template": ["new", "mine", "--template", "nowhere", "--json"],
    "update": ["update", "--json"],
    "update --abort": ["update", "--abort", "--json"],
    "check": ["check", "nowhere", "--json"],
    "check --output-format": ["check", "nowhere", "--output-format=json"],
    "explain": ["explain", "DT999", "--json"],
    "doctor": ["doctor", "one", "two", "--json"],
    "add": ["add", "callback", "Seen", "--json"],
    "add, no name": ["add", "hook", "--json"],
    "dry-run": ["dry-run", "nowhere.py", "--json"],
    "an option that is none": ["check", "--bogus", "--json"],
    "a command that is none": ["bogus", "--json"],
}


@pytest.mark.parametrize("words", BROKEN.values(), ids=BROKEN)
def test_an_error_is_one_object_too(words: list[str], tmp_path: Path) -> None:
    done = dream(*words, folder=tmp_path)
    plain = dream(*(word for word in words if "json" not in word), folder=tmp_path)
    error = json.loads(done.stdout)["error"]
    assert list(error) == ["fact", "help"] and error["fact"] in done.stderr
    assert done.returncode == plain.returncode == 2
    assert plain.stdout == ""
    assert os.listdir(tmp_path) == []


def test_an_update_taken_back_is_told_as_json(tmp_path: Path) -> None:
    dream("new", "mine", "--parallel", "ddp", "--no-git", folder=tmp_path)
    dream("update", "mine", "--parallel", "fsdp", folder=tmp_path)
    done = dream("update", "mine", "--abort", "--json", folder=tmp_path)
    told = json.loads(done.stdout)
    assert told["version"] == 1 and told["project"] == str(tmp_path / "mine")
    assert told["told"] == "The last update is taken back."
