"""A sample of all that is installed: no false alarm, no crash, and nothing of it runs.

`python tests/benchmarks/no_false_alarm.py` does the same with every file.
"""

import ast
import random
import sys
import sysconfig
from pathlib import Path

import pytest
from watched import watched
from wild_checks import Outcome, examine, python_files_of, write
from wild_source import as_trainers, damaged, with_probe

from dream_scaffold.check import Options, check

GOLDEN = Path(__file__).parents[1] / "templates" / "golden"
SAMPLE, LARGEST, FUZZED = 400, 60_000, 300


def sample() -> list[Path]:
    """Files of the standard library, its tests, torch and whatever else there is."""
    paths = sysconfig.get_paths()
    files = python_files_of(sorted({paths["stdlib"], paths["purelib"], paths["platlib"]}))
    chosen = random.Random(0).sample(files, min(4 * SAMPLE, len(files)))
    # Large ones take their time; the command checks them, too.
    small = [Path(path) for path in chosen if Path(path).stat().st_size < LARGEST]
    return small[:SAMPLE]


def readable(path: Path) -> str | None:
    try:
        text = path.read_text(encoding="utf-8")
        ast.parse(text)
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return text


@pytest.fixture(scope="module")
def files() -> list[Path]:
    return sample()


def test_files_as_they_are(files: list[Path], tmp_path: Path) -> None:
    alone = tmp_path / "train.py"
    for path in files:
        alone.write_bytes(path.read_bytes())
        outcome = examine(str(alone), str(path))
        # None of them has a trainer; what Python cannot read, neither can the check.
        assert outcome.survived, outcome
        assert not outcome.errors or readable(path) is None, outcome


@pytest.mark.parametrize("disguise", [with_probe, as_trainers])
def test_files_in_disguise(files: list[Path], tmp_path: Path, disguise: object) -> None:
    fallen: list[Outcome] = []
    for path in files:
        text = readable(path)
        if text is not None and callable(disguise):
            write(tmp_path, {"train.py": disguise(text)})
            outcome = examine(str(tmp_path / "train.py"), str(path))
            fallen += [] if outcome.survived else [outcome]
    assert fallen == []


def test_damaged_projects(tmp_path: Path) -> None:
    folders = sorted(GOLDEN.iterdir())
    fallen: list[Outcome] = []
    for seed in range(FUZZED):
        chance = random.Random(seed)
        golden = chance.choice(folders)
        files: dict[str, str | bytes] = {p.name: p.read_text() for p in golden.glob("*.py")}
        name = chance.choice(["train.py", "config.py"])
        files[name] = damaged(str(files[name]), chance)
        folder = tmp_path / str(seed)
        write(folder, files)
        outcome = examine(str(folder), f"{golden.name}, {name}, seed {seed}")
        fallen += [] if outcome.survived else [outcome]
    assert fallen == []


TRAP = """
import os, pathlib, subprocess, sys
from dream_trainer import DreamTrainer, DreamTrainerConfig
from trap import *
import package.trap

pathlib.Path("touched").write_text("x")
os.system("touch touched")
subprocess.run(["touch", "touched"])
exec("import this")
sys.exit(3)


class T(DreamTrainer):
    x = __import__("trap")

    def training_step(self, batch, batch_idx):
        open("touched", "w")
        return eval("1")


T(DreamTrainerConfig(seed=eval("__import__('trap').x"))).fit()
"""


def test_nothing_of_a_project_runs_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    trap = "raise SystemExit('a check ran this')\n"
    traps = ("trap.py", "package/__init__.py", "package/trap.py", "sitecustomize.py")
    write(tmp_path, {"train.py": TRAP} | dict.fromkeys(traps, trap))
    examine(str(tmp_path))  # What is imported late is imported now.
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with watched(str(tmp_path)) as deeds:
        for path in ("", "train.py", "package"):
            examine(str(tmp_path / path))
    assert deeds == []
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before
    assert check(Options(paths=("train.py",))).project.trainers[0].name == "T"


def test_real_files_are_not_run(files: list[Path], tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "x = 1\n"})
    examine(str(tmp_path))
    for path in files[:40]:
        text = readable(path)
        if text is not None:
            folder = tmp_path / path.stem
            write(folder, {"train.py": with_probe(text), f"{path.name}": text})
            with watched(str(folder)) as deeds:
                examine(str(folder / "train.py"))
            assert deeds == [], path


@pytest.mark.parametrize(
    ("deed", "told"),
    [
        ("exec('x = 1')", "ran <string>"),
        ("open(f'{folder}/new', 'w').close()", "to write"),
        ("__import__('runpy').run_path(f'{folder}/part.py')", "ran "),
        ("sys.path.insert(0, folder); __import__('part')", "part"),
        ("__import__('os').system('true')", "os.system"),
        ("__import__('subprocess').run(['true'])", "subprocess.Popen"),
        ("__import__('socket').socket().close()", "socket."),
        ("__import__('os').remove(f'{folder}/part.py')", "os.remove"),
    ],
)
def test_the_watch_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deed: str, told: str
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    write(tmp_path, {"part.py": "y = 1\n"})
    code = compile(deed, __file__, "exec")
    with watched(str(tmp_path)) as deeds:
        exec(code, {"folder": str(tmp_path), "sys": sys})
    sys.modules.pop("part", None)
    assert any(told in seen for seen in deeds), deeds
