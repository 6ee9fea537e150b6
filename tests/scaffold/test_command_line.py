"""The `dream` command as a process: quick to start, asks on a terminal, never without one."""

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
        "check",
        "explain",
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


def on_a_terminal(folder: Path, *arguments: str, answers: list[bytes]) -> tuple[int, str]:
    """Run `dream` on a terminal of its own, answering one prompt after the other."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # A job in the background ignores it.
        os.execve(sys.executable, [*DREAM, *arguments], ENV)
    said, waiting, deadline = b"", list(answers), time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                chunk = os.read(terminal, 4096)
            except OSError:
                break
            if not chunk:
                break
            said += chunk
            if waiting and said.rstrip().endswith(b":"):
                os.write(terminal, waiting.pop(0))
                said += b"\n"
    _, status = os.waitpid(process, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), said.decode().replace("\r\n", "\n")


def test_a_terminal_is_asked_for_what_is_missing(tmp_path: Path) -> None:
    answers = [b"my-lm\n", b"ddp+tpp\n", b"pp+ddp\n", b"\n"]
    code, said = on_a_terminal(tmp_path, "new", "--no-git", answers=answers)
    assert code == 0, said
    assert "--parallel ddp+tpp: tpp is unknown. Did you mean tp? Known are single, " in said
    recorded = (tmp_path / "my-lm/.dream/answers.yml").read_text()
    assert "parallel: ddp+pp\nrecipe: lm\n" in recorded


def test_a_terminal_is_not_asked_when_all_is_said(tmp_path: Path) -> None:
    code, said = on_a_terminal(
        tmp_path, "new", "my-lm", "--parallel", "ddp", "--no-git", answers=[]
    )
    assert code == 0
    assert said.startswith("my-lm/\n")


def test_ctrl_c_at_a_question_leaves_nothing(tmp_path: Path) -> None:
    code, said = on_a_terminal(tmp_path, "new", "my-lm", answers=[b"\x03"])
    assert code == 130
    assert said.endswith("interrupted: nothing was left half made\n")
    assert os.listdir(tmp_path) == []
