"""A project appears whole or not at all, whatever ends the command."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dream_scaffold.errors import DreamError
from dream_scaffold.project.new import create
from dream_scaffold.project.options import Options
from dream_scaffold.project.place import clear_up, put, staged

NEW = [sys.executable, "-m", "dream_scaffold", "new", "my-lm", "--parallel", "fsdp"]
ROOT = Path(__file__).parents[2]
ENV = os.environ | {"PYTHONPATH": str(ROOT)}
FULL = 13
"""Entries of a whole project, `.git` included."""

DDP = Options(name="my-lm", parallel="ddp")


def is_whole(project: Path) -> bool:
    hashes = project / ".dream" / "hashes.sha256"
    check = ["sha256sum", "--check", "--strict", "--quiet", str(hashes.relative_to(project))]
    return subprocess.run(check, cwd=project).returncode == 0


@pytest.mark.parametrize(
    ("number", "codes"),
    [
        (signal.SIGINT, {0, 130, -signal.SIGINT}),
        (signal.SIGTERM, {0, 143, -signal.SIGTERM}),
        (signal.SIGKILL, {0, -signal.SIGKILL}),
    ],
)
def test_killed_at_any_moment(tmp_path: Path, number: signal.Signals, codes: set[int]) -> None:
    moments = random.Random(number).sample(range(20, 700), 6)
    for moment in sorted(moments):
        folder = tmp_path / str(moment)
        folder.mkdir()
        with (folder / "said").open("wb") as said:
            process = subprocess.Popen(NEW, cwd=folder, env=ENV, stdout=said, stderr=said)
            time.sleep(moment / 1000)
            process.send_signal(number)
            code = process.wait(60)
        said_text = (folder / "said").read_text()
        # While its modules are being imported, Python itself answers Ctrl-C.
        assert code in codes or said_text.endswith("KeyboardInterrupt\n"), said_text
        clear_up(folder / "my-lm")  # As the next run does.
        left = set(os.listdir(folder)) - {"said"}
        assert left <= {"my-lm"}
        if left:
            assert is_whole(folder / "my-lm")
            assert len(os.listdir(folder / "my-lm")) == FULL


@pytest.mark.parametrize("blocks", [0, 1, 4, 8])
def test_a_write_that_fails_leaves_nothing(tmp_path: Path, blocks: int) -> None:
    limited = ["bash", "-c", f'ulimit -f {blocks}; exec "$@"', "bash", *NEW]
    done = subprocess.run(
        limited, cwd=tmp_path, env=ENV, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert "\nhelp: " in done.stderr
    assert len(done.stderr.splitlines()) == 2
    assert os.listdir(tmp_path) == []


def test_an_interrupt_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dream_scaffold.project.new.write_snapshot", interrupted)
    with pytest.raises(KeyboardInterrupt):
        create(tmp_path / "my-lm", DDP)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("failing", range(1, 9))
def test_a_failed_move_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    folder = tmp_path / "my-lm"
    (folder / "tests").mkdir(parents=True)
    for name in ("train.py", "config.py", "tests/test_project.py", "notes.txt"):
        (folder / name).write_text(f"my {name}")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    rename, calls = os.rename, iter(range(1, 1000))

    def rename_but_one(source: Path, place: Path) -> None:
        if next(calls) == failing:
            raise OSError(28, "No space left on device", str(place))
        rename(source, place)

    real_render = sys.modules["dream_scaffold.project.new"].render_project

    def render(options: Options, target: Path) -> None:
        real_render(options, target)
        monkeypatch.setattr("dream_scaffold.project.place.os.rename", rename_but_one)

    monkeypatch.setattr("dream_scaffold.project.new.render_project", render)
    with pytest.raises(DreamError) as caught:
        create(folder, DDP, force=True, git=False)
    assert caught.value.fact.startswith(
        f"{folder} could not be written: No space left on device ({folder}/"
    )
    assert caught.value.remedy == "Nothing was left behind. Mend that and run it again."
    monkeypatch.undo()
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert sorted(os.listdir(folder)) == ["config.py", "notes.txt", "tests", "train.py"]


def test_a_link_is_replaced_and_what_it_points_to_is_not(tmp_path: Path) -> None:
    outside = tmp_path / "outside.py"
    outside.write_text("mine")
    folder = tmp_path / "my-lm"
    folder.mkdir()
    (folder / "train.py").symlink_to(outside)
    with staged(folder) as stage:
        (stage / "project").mkdir()
        (stage / "project/train.py").write_text("new")
        assert put(stage / "project", folder) == ["train.py"]
    assert (folder / "train.py").read_text() == "new"
    assert outside.read_text() == "mine"
    assert os.listdir(folder) == ["train.py"]


def test_a_target_that_appears_meanwhile_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "my-lm"
    with staged(target) as stage:
        (stage / "project").mkdir()
        (stage / "project/train.py").write_text("new")
        target.mkdir()
        (target / "train.py").write_text("mine")
        with pytest.raises(DreamError, match="appeared"):
            put(stage / "project", target)
    assert (target / "train.py").read_text() == "mine"


def test_a_kill_while_files_are_moved_is_taken_back_by_the_next_run(tmp_path: Path) -> None:
    folder = tmp_path / "my-lm"
    (folder / "tests").mkdir(parents=True)
    for name in ("train.py", "config.py", "tests/test_project.py", "notes.txt"):
        (folder / name).write_text(f"my {name}")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for moved in range(12):
        child = os.fork()
        if child == 0:
            rename, left = os.rename, iter(range(moved))

            def rename_some(source: Path, place: Path, rename=rename, left=left) -> None:
                if next(left, None) is None:
                    os._exit(9)
                rename(source, place)

            with pytest.MonkeyPatch.context() as patch, staged(folder) as stage:
                project = stage / "my-lm"
                (project / "tests").mkdir(parents=True)
                for name in ("train.py", "config.py", "tests/test_project.py", "new.py"):
                    (project / name).write_text(f"new {name}")
                patch.setattr("dream_scaffold.project.place.os.rename", rename_some)
                put(project, folder)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) == 0:
            assert moved == 7, "four files, of which three make room"
            assert (folder / "new.py").read_text() == "new new.py"
            return
        clear_up(folder)
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    raise AssertionError("it was never finished")


@pytest.mark.parametrize(
    "words",
    [
        ["new", "my-lm", "--parallel", "single"],
        ["new", "my-lm", "--parallel", "single", "--pretend"],
        ["update"],
        ["add", "callback", "Seen"],
        ["check"],
        ["check", "train.py"],
    ],
    ids=" ".join,
)
def test_a_folder_too_deep_for_the_system_is_said(tmp_path: Path, words: list[str]) -> None:
    """Its own path is longer than any call takes; a process can be in it all the same."""
    script = (
        "import os, runpy, sys\n"
        "for _ in range(25):\n"
        "    os.makedirs('d' * 200, exist_ok=True)\n"
        "    os.chdir('d' * 200)\n"
        f"sys.argv = ['dream', *{words!r}]\n"
        "runpy.run_module('dream_scaffold', run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr and done.stderr.startswith("error: ")
