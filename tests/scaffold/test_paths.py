"""Places that are unusual, or of no use: every command does the right thing or says why not."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.conftest import ROOT

DREAM = [sys.executable, "-m", "dream_scaffold"]
ENV = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
ODD = "größe und 😀 'mehr'"
UNPRIVILEGED = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
"""Before a command of root's, to whom nothing is closed otherwise."""


def dream(folder: Path, *words: object, before: Sequence[str] = ()) -> tuple[int, str, str]:
    done = subprocess.run(
        [*before, *DREAM, *map(str, words)],
        cwd=folder,
        env=ENV,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def work_through(project: Path, given: object, folder: Path) -> None:
    """Every command on the project that `given` names, seen from `folder`."""
    for words in (
        ["update", given, "--tracker", "tensorboard"],
        ["add", "callback", "Seen", "--project", given],
        ["check", given],
        ["update", given, "--abort"],
    ):
        code, _, err = dream(folder, *words)
        assert (code, err) == (0, ""), words
    code, out, err = dream(folder, "doctor", given, "--no-smoke")
    assert "dream check" in out and err == ""
    assert (project / "train.py").is_file() and not (project / "train.py").is_symlink()


def test_a_folder_of_spaces_quotes_and_other_letters(tmp_path: Path) -> None:
    place = tmp_path / ODD
    place.mkdir()
    code, out, err = dream(tmp_path, "new", f"{ODD}/my-lm", "--parallel", "ddp")
    assert (code, err) == (0, "")
    enter = next(line for line in out.splitlines() if line.startswith("  cd "))
    entered = subprocess.run(
        ["bash", "-c", f"{enter} && pwd"], cwd=tmp_path, capture_output=True, text=True
    )
    assert entered.stdout == f"{place / 'my-lm'}\n"
    work_through(place / "my-lm", place / "my-lm", tmp_path)


def test_a_project_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "my-lm").symlink_to("real")
    assert dream(tmp_path, "new", "my-lm", "--parallel", "ddp", "--no-git")[0] == 0
    assert (tmp_path / "my-lm").is_symlink()
    work_through(tmp_path / "real", "my-lm", tmp_path)
    assert (tmp_path / "my-lm").is_symlink() and os.listdir(tmp_path / "real")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("loose", "loose exists and is a symbolic link to nothing."),
        ("loose/my-lm", "loose is a symbolic link to nothing."),
        ("round", "round exists and is a symbolic link to nothing."),
        ("file", "file exists and is not a folder."),
        ("file/my-lm", "file is not a folder."),
        ("file/deep/my-lm", "file is not a folder."),
        ("a b/my-lm", "a b'\n"),
        ("/proc/my-lm", "/proc/my-lm could not be written: "),
        ("/", "'' cannot name a project: it is empty."),
        ("x" * 300, "it has 300 characters, and 64 are the most."),
        ("x" * 300 + "/my-lm", "File name too long"),
    ],
)
def test_new_where_nothing_can_be(tmp_path: Path, path: str, said: str) -> None:
    (tmp_path / "loose").symlink_to("nowhere")
    (tmp_path / "round").symlink_to("round")
    (tmp_path / "file").write_text("mine")
    before = sorted(os.listdir(tmp_path))
    code, out, err = dream(tmp_path, "new", path, "--defaults")
    assert (code, out) == (2, "") and err.startswith("error: ") and said in err
    assert sorted(os.listdir(tmp_path)) == before
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    "words",
    [["update"], ["check"], ["add", "callback", "Seen"], ["new", "my-lm", "--defaults"]],
    ids=" ".join,
)
def test_a_folder_that_is_gone(tmp_path: Path, words: list[str]) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    leave = ["bash", "-c", 'rmdir ../gone; exec "$@"', "bash"]
    done = subprocess.run(
        [*leave, *DREAM, *words], cwd=gone, env=ENV, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr == (
        "error: This folder does not exist any more.\nhelp: Go to another one: cd\n"
    )


@pytest.fixture
def closed() -> Iterator[Path]:
    """A project and an empty folder that whoever runs `dream` may read and not write."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        dream(folder, "new", "my-lm", "--parallel", "ddp", "--no-git")
        (folder / "empty").mkdir()
        for path in (*folder.rglob("*"), folder):
            path.chmod(0o555 if path.is_dir() else 0o444)
        yield folder
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755)


def test_a_place_to_read_only(closed: Path) -> None:
    plain = UNPRIVILEGED if os.getuid() == 0 else []
    if plain and (not shutil.which(plain[0]) or dream(closed, "--version", before=plain)[0]):
        pytest.skip("root cannot do without its privileges here")
    files = contents(closed)
    for words in (["new", "other"], ["new", "empty/other"], ["new", "empty"]):
        code, _, err = dream(closed, *words, "--defaults", before=plain)
        assert code == 2 and err.startswith("error: You have no permission to write in ")
    for words in (
        ["update", "my-lm", "--tracker", "tensorboard"],
        ["add", "callback", "Seen", "--project", "my-lm"],
    ):
        code, _, err = dream(closed, *words, before=plain)
        assert code == 2 and "ermission" in err and "Nothing was changed" in err
    assert dream(closed, "check", "my-lm", before=plain)[0] == 0
    assert dream(closed, "update", "my-lm", "--dry-run", before=plain)[0] == 0
    assert contents(closed) == files


def test_a_home_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".profile").write_text("mine")
    (tmp_path / "train.py").write_text("mine")
    before = contents(tmp_path)
    home = tmp_path.rename(tmp_path.with_name("ada"))
    code, _, err = dream(home, "new", home, "--defaults")
    assert code == 2 and f"{home} exists and is not empty." in err
    assert contents(home) == before
    home.rename(tmp_path)
