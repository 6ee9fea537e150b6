"""`benchmark`, `profile`, `find-graph-breaks` and `importtime`, in a project and by themselves."""

import gzip
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dream_trainer.configs import CheckpointParameters, DreamTrainerConfig, LoggingParameters
from dream_trainer.utils.diagnosis_commands import benchmark, importtime, package_times
from tests.conftest import ROOT, run_bounded
from tests.runtime.tiny import TinyTrainer, batches, config

Run = Callable[..., str]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new project whose blocks break their graphs."""
    folder = tmp_path_factory.mktemp("new") / "project"
    command = [sys.executable, "-m", "dream_scaffold", "new", str(folder)]
    options = ["--recipe", "blank", "--parallel", "single"]
    done = run_bounded([*command, *options], cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    script = folder / "train.py"
    text = script.read_text()
    planted = text.replace(
        "        return x + self.down(", '        print("", end="")\n        return x + self.down('
    )
    assert planted != text
    script.write_text(planted)
    return folder


@pytest.fixture
def run(project: Path) -> Run:
    """`run(*arguments)` is what `python train.py *arguments` prints."""

    def call(*arguments: str) -> str:
        command = [sys.executable, "train.py", *arguments]
        environment = {"PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": ""}
        done = run_bounded(command, cwd=project, timeout=90, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return call


def test_benchmark(run: Run, project: Path) -> None:
    command = "benchmark --skip 2 --print-every 1 --window-size 2 --windows 2 --json"
    report = json.loads(run(*command.split()))
    assert report["steps"] == 4
    rows = {row: times["median"] for row, times in report["seconds"].items()}
    assert rows["backward"] > rows["data"] > 0
    assert rows["step"] == pytest.approx(sum(rows.values()) - rows["step"], rel=0.5)
    assert report["tflops_per_second"] > 0
    assert not (project / "runs").exists()  # Neither a log nor a checkpoint.


def test_profile(run: Run, project: Path) -> None:
    options = ["--skip", "1", "--warmup", "1", "--cycle", "2", "--output-dir", "traces"]
    out = run("profile", *options)
    assert "profile: traces/rank0.json.gz, open it in https://ui.perfetto.dev" in out
    with gzip.open(project / "traces" / "rank0.json.gz", "rt") as file:
        names = [event["name"] for event in json.load(file)["traceEvents"]]
    assert names.count("forward") == names.count("backward") == 2


def test_find_graph_breaks(run: Run, project: Path) -> None:
    out = run("find-graph-breaks", "--output-path", "breaks.log", "--skip", "1")
    assert "graph breaks: 1, different ones: 1, blocks explained: 1 of 1" in out
    lines = (project / "train.py").read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "print(" in text)
    place = f"{project / 'train.py'}:{line} in forward"
    assert f"  1x {place}" in out
    assert f"1x {place}, of model\n" in (project / "breaks.log").read_text()


def test_importtime(run: Run) -> None:
    rows = run("importtime", "--top", "4").splitlines()
    assert len(rows) == 1 + 4 + 1
    times = {row.split()[2]: float(row.split()[0]) for row in rows[1:]}
    assert {"torch", "train", "all"} & set(times) == {"torch", "all"}
    assert times["torch"] > 0.4 * times["all"]
    assert list(times.values())[:4] == sorted(list(times.values())[:4], reverse=True)


def test_help_names_them(run: Run) -> None:
    out = run("--help")
    for command in ("benchmark", "profile", "find-graph-breaks", "importtime"):
        assert re.search(rf"\b{command}\b", out)


REPORT = """\
import time: self [us] | cumulative | imported package
import time:       100 |        100 | encodings
import time:        10 |         10 |     heavy.a.deep
import time:        30 |         40 |   heavy.a
import time:         5 |          5 |     light
import time:        20 |         25 |   other
import time:         7 |          7 |   heavy.b
import time:       400 |        472 | heavy
import time:         1 |          1 | other.late
a line of the script
"""


def test_times_of_packages() -> None:
    packages, total = package_times(REPORT)
    assert packages == {"encodings": 100, "heavy": 472, "other": 26, "light": 5}
    assert total == 573


def test_importtime_of_a_script_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text("import beside\nimport nowhere_to_be_found")
    (tmp_path / "beside.py").write_text("")
    monkeypatch.setattr(sys, "argv", [str(script), "importtime"])
    assert importtime(lambda config: None, DreamTrainerConfig) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.endswith("ModuleNotFoundError: No module named 'nowhere_to_be_found'\n")
    assert "import time" not in told.err


@pytest.mark.parametrize(("given", "limit"), [(None, None), (3, 5), (200, 200)])
def test_what_the_run_keeps(
    given: int | None,
    limit: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`max_steps`, on which a learning rate may depend, stays, unless it is too small."""
    monkeypatch.chdir(tmp_path)
    ran: list[Any] = []

    class Quiet(TinyTrainer):
        def validation_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
            raise AssertionError("validated")

    def main(config: DreamTrainerConfig) -> None:
        ran.append(trainer := Quiet(config, batches(2), batches(1)))
        trainer.fit()

    def make() -> DreamTrainerConfig:
        made = config(max_steps=given, num_sanity_val_steps=1, val_every_n_steps=1)
        made.callbacks = None
        made.logging_parameters = LoggingParameters()
        made.checkpoint_parameters = CheckpointParameters(
            root_dir=str(tmp_path), checkpoint_every_n_steps=1
        )
        return made

    assert benchmark(main, make, skip=1, window_size=2, windows=2, json=True) == 0
    (trainer,) = ran
    assert trainer.global_step == 5
    assert trainer.config.training_parameters.max_steps == limit
    assert list(tmp_path.iterdir()) == []
    told = capsys.readouterr()
    assert json.loads(told.out)["steps"] == 4
    assert "benchmark: window 2, ms: step" in told.err
