"""`[tool.dream.check]`, watching, and the hook for other repositories."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from small_projects import PRELUDE

from dream_scaffold.check import Options, check
from dream_scaffold.errors import DreamError

ROOT = Path(__file__).parents[2]
FAULTY = PRELUDE + "class T(Complete):\n    def validation_step(self, batch):\n        return {}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(FAULTY)
    return tmp_path


def found(folder: Path, settings: str, *paths: str) -> list[str]:
    (folder / "pyproject.toml").write_text(f"[tool.dream.check]\n{settings}\n")
    return [finding.code for finding in check(Options(paths=paths or (".",))).findings]


def test_files_that_are_left_out(folder: Path) -> None:
    (folder / "old").mkdir()
    (folder / "old" / "train.py").write_text(FAULTY)
    assert found(folder, "") == ["DT204", "DT204"]
    for pattern in ("old", "old/", "old/*", "*/train.py"):
        assert found(folder, f'exclude = ["{pattern}"]') == ["DT204"]
    os.chdir(folder / "old")
    assert found(folder, 'exclude = ["train.py"]', "..") == ["DT204"]


def test_rules_that_do_not_apply_somewhere(folder: Path) -> None:
    assert found(folder, 'per-file-ignores = {"train.py" = ["DT2"]}') == []
    assert found(folder, 'per-file-ignores = {"other.py" = ["DT2"]}') == ["DT204"]
    assert found(folder, '[tool.dream.check.per-file-ignores]\n"*.py" = ["DT204"]') == []


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("exclud = []", "Did you mean exclude?"),
        ("select = [1]", "Give it a list of texts."),
        ("exclude = 'old'", "Give it a list of texts."),
        ("per-file-ignores = {a = 'DT2'}", "Give it a table of lists of texts."),
        ("strict = 1", "Give it a value of type bool."),
    ],
)
def test_settings_that_are_wrong(folder: Path, settings: str, told: str) -> None:
    with pytest.raises(DreamError) as caught:
        found(folder, settings)
    assert told in str(caught.value)


def test_a_file_of_settings_that_cannot_be_read(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.dream]\ncheck = 3\n")
    with pytest.raises(DreamError, match=r"tool\.dream\.check a value"):
        check(Options(paths=(".",)))
    (folder / "pyproject.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(DreamError, match="cannot be read"):
        check(Options(paths=(".",)))


def test_a_decorated_hook_is_suppressed_on_its_def_line(folder: Path) -> None:
    hook = "    def validation_step(self, batch):"
    decorated = f"    @torch.no_grad()\n{hook}  # noqa: DT204"
    (folder / "train.py").write_text("import torch\n" + FAULTY.replace(hook, decorated))
    assert found(folder, "") == []


def test_watching_checks_again(folder: Path) -> None:
    command = [sys.executable, "-m", "dream_scaffold", "check", "--watch"]
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(
            [*command, "--output-format", "concise"],
            stdout=said,
            stderr=said,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
    try:
        _wait(folder, "DT204")
        (folder / "train.py").write_text(FAULTY.replace("self, batch)", "self, batch, batch_idx)"))
        _wait(folder, "All checks passed")
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(30)
    text = (folder / "said").read_text()
    assert code == 0 and "train.py\n" in text.split("--", 1)[1] and "Traceback" not in text


def _wait(folder: Path, text: str) -> None:
    deadline = time.monotonic() + 60
    while text not in (folder / "said").read_text():
        assert time.monotonic() < deadline, (folder / "said").read_text()
        time.sleep(0.1)


def test_the_hook_for_pre_commit() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["id"] == "dream-check" and hook["pass_filenames"] is False
    words = hook["entry"].split()
    done = subprocess.run(
        [sys.executable, "-m", "dream_scaffold", *words[1:]],
        cwd=ROOT / "tests/templates/golden/lm-fsdp",
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
