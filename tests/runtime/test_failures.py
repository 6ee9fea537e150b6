"""What goes wrong ends in one clear message, a non-zero exit, and no hang."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dream_scaffold.project.options import Options
from dream_scaffold.project.render import render_project
from tests.conftest import run_bounded

LAUNCHER = re.compile(r"^[WEI]\d{4} ")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    render_project(Options(name="small", recipe="blank", parallel="fsdp"), tmp_path)
    return tmp_path


def torchrun(project: Path, *arguments: str, ranks: int = 2) -> subprocess.CompletedProcess[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return subprocess.run(
        [sys.executable, *launcher, "train.py", *arguments],
        cwd=project,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )


def own_errors(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines before the launcher's own report of what it saw."""
    lines = []
    for line in done.stderr.splitlines():
        if LAUNCHER.match(line) or "torch/distributed/run" in line:
            break
        lines.append(line)
    return lines


def edit(file: Path, change: Callable[[str], str]) -> None:
    before = file.read_text()
    after = change(before)
    assert after != before, f"the edit of {file.name} changed nothing"
    file.write_text(after)


def remove_hook(name: str) -> Callable[[str], str]:
    return lambda text: re.sub(rf"    def {name}\(.*?\n(?=\n    def )", "", text, flags=re.S)


def insert_into(hook: str, line: str) -> Callable[[str], str]:
    """`line` as the first statement of a hook."""
    return lambda text: re.sub(rf"(    def {hook}\([^\n]*\n)", rf"\1        {line}\n", text)


def test_missing_hook_is_explained_as_the_checker_does(project: Path) -> None:
    edit(project / "train.py", remove_hook("apply_fully_shard"))
    done = torchrun(project)
    checked = subprocess.run(
        [
            sys.executable,
            "-m",
            "dream_scaffold",
            "check",
            "train.py",
            "--output-format",
            "concise",
        ],
        cwd=project,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
    )
    explanation = (
        'dp_shard="auto" calls apply_fully_shard(config), which Trainer does not define. '
        "Define it, or set dp_shard=1."
    )
    line = next(
        number
        for number, text in enumerate((project / "train.py").read_text().splitlines(), start=1)
        if text.startswith("class Trainer")
    )
    assert done.returncode != 0
    assert own_errors(done) == [
        f"error: {explanation} [DT201]",
        f"  --> {project}/train.py:{line}, class Trainer",
    ]
    assert checked.returncode == 1
    assert f"train.py:{line}:" in checked.stdout
    assert "DT201" in checked.stdout
    assert explanation.partition(" Define")[0] in checked.stdout


def test_processes_that_do_not_fit_the_mesh(project: Path) -> None:
    done = torchrun(project, "--config", "single")
    assert done.returncode != 0
    assert own_errors(done) == [
        "error: dp_replicate(1) * dp_shard(1) = 1, but WORLD_SIZE is 2. Launch 1 (a single "
        "device), or choose DeviceParameters.FSDP() or DDP(). [DT102]"
    ]


def test_weights_left_uninitialised(project: Path) -> None:
    edit(project / "train.py", insert_into("init_weights", "return"))
    done = torchrun(project)
    assert done.returncode != 0
    (message,) = own_errors(done)
    assert re.fullmatch(
        r"error: rank \d: init_weights left \d+ tensors uninitialised: model\.embed\.weight, .*"
        r"Fill every parameter and every buffer there, those that no checkpoint holds "
        r"\(persistent=False\) included\.",
        message,
    )


def test_config_that_raises(project: Path) -> None:
    edit(
        project / "config.py",
        lambda text: text.replace(
            "def fsdp_config() -> Config:\n", "def fsdp_config() -> Config:\n    {}['lr']\n"
        ),
    )
    done = torchrun(project)
    assert done.returncode != 0
    first, place = own_errors(done)
    assert first == "error: 'lr' [KeyError]"
    assert re.fullmatch(rf"  --> {project}/config\.py:\d+, in fsdp_config", place)


def test_a_rank_that_raises_speaks_for_all(project: Path) -> None:
    edit(
        project / "train.py",
        insert_into(
            "training_step", "if self.world.rank == 1 and batch_idx == 2: raise KeyError('boom')"
        ),
    )
    begin = time.monotonic()
    done = torchrun(project)
    lines = own_errors(done)
    assert done.returncode != 0
    assert lines[0] == "rank 1: failed"
    assert lines[1] == "Traceback (most recent call last):"
    assert "KeyError: 'boom'" in lines
    assert sum("Traceback" in line for line in lines) == 1
    assert time.monotonic() - begin < 60


def test_a_rank_that_is_killed_ends_the_others(project: Path) -> None:
    edit(
        project / "train.py",
        insert_into(
            "training_step",
            "if self.world.rank == 1 and batch_idx == 2: import os; os.kill(os.getpid(), 9)",
        ),
    )
    done = torchrun(project)
    assert done.returncode != 0
    assert "Traceback" not in "\n".join(own_errors(done))
    assert "Signal 9 (SIGKILL)" in done.stderr


@pytest.mark.parametrize("ranks", [1, 2])
def test_many_runs_end_cleanly(project: Path, ranks: int) -> None:
    edit(project / "config.py", lambda text: text.replace("n_epochs=2", "max_steps=2"))
    for _ in range(2):
        done = torchrun(project, ranks=ranks)
        assert done.returncode == 0, done.stderr
        assert "terminate called" not in done.stderr


@pytest.mark.parametrize(("end", "code"), [("sys.exit(75)", 75), ("os.kill(os.getpid(), 9)", 137)])
def test_a_plain_python_ends_with_the_code_of_its_ranks(
    tmp_path: Path, end: str, code: int
) -> None:
    """A scheduler starts a run again that ends with 75, however it was launched."""
    script = tmp_path / "several.py"
    script.write_text(
        "import os, sys\n"
        "from dream_trainer.utils import entrypoint\n"
        "entrypoint.accelerator_count = lambda: 2\n"
        f"@entrypoint.entrypoint\ndef main():\n    {end}\n"
        "main()\n"
    )
    done = run_bounded([sys.executable, str(script)], cwd=tmp_path, timeout=100)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
