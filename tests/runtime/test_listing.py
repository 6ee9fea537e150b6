"""`checkpoints`, `verify` and `diff` of a training script."""

import json
from pathlib import Path

import pytest

from dream_trainer import DreamTrainerConfig
from dream_trainer.checkpoint.listing import age, size
from dream_trainer.configs import CheckpointParameters
from dream_trainer.utils.checkpoint_commands import checkpoints, diff, verify
from tests.runtime.test_manifest import write


def config(root: Path) -> DreamTrainerConfig:
    return DreamTrainerConfig(
        checkpoint_parameters=CheckpointParameters(root_dir=str(root), monitor="val/loss")
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two runs: one with two checkpoints and a leftover, one with one."""
    write(tmp_path / "a" / "checkpoints", 10, **{"val/loss": 0.5})
    write(tmp_path / "a" / "checkpoints", 20, **{"val/loss": 0.25})
    (tmp_path / "a" / "checkpoints" / "step-00000030.unfinished").mkdir()
    write(tmp_path / "b" / "checkpoints", 7)
    (tmp_path / "without").mkdir()
    return tmp_path


def listed(root: Path, **options: object) -> int:
    defaults: dict[str, object] = {"run": None, "verify": False, "json": False}
    return checkpoints(None, lambda: config(root), **defaults | options)


def test_the_table(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(root) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["run", "step", "epoch", "val/loss", "size", "age", "mesh", "state"]
    assert lines[1].startswith("a    20    0      0.25      10 B")
    assert "dp_shard=2" in lines[1] and lines[1].endswith("complete")
    assert lines[3].endswith("unfinished: step-00000030.unfinished")
    assert len(lines) == 5


def test_one_run_verified(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = root / "a" / "checkpoints" / "step-00000010" / "data"
    data.write_bytes(b"012345678x")
    assert listed(root, run="a") == 0, "sizes alone are right"
    capsys.readouterr()
    assert listed(root, run="a", verify=True) == 1
    out = capsys.readouterr().out
    assert "verified" in out and "damaged: data is damaged: its checksum has changed" in out


def test_json_has_stable_keys(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(root, run="b", json=True) == 0
    (row,) = json.loads(capsys.readouterr().out)
    keys = {"run", "step", "epoch", "val/loss", "bytes", "created", "ranks", "mesh"}
    assert set(row) == keys | {"problems", "path"}
    assert row["step"] == 7 and row["val/loss"] is None and row["problems"] == []


def test_nothing_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(tmp_path) == 1
    assert "no checkpoints of any run" in capsys.readouterr().err


def test_verify(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = root / "a"
    assert verify(None, lambda: None, path=str(path)) == 0
    assert "step-00000020: verified, 1 files, 10 B" in capsys.readouterr().out
    (path / "checkpoints" / "step-00000020" / "data").unlink()
    assert verify(None, lambda: None, path=str(path)) == 1
    assert "data is missing" in capsys.readouterr().out
    assert verify(None, lambda: None, path=str(root / "none")) == 1
    assert "holds no finished checkpoint" in capsys.readouterr().err


def test_diff(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = str(root / "a"), str(root / "b" / "checkpoints" / "step-00000007")
    assert diff(None, lambda: None, one=one, other=other) == 0
    assert "the same 1 tensors" in capsys.readouterr().out
    manifest = root / "b" / "checkpoints" / "step-00000007" / "manifest.json"
    values = json.loads(manifest.read_text())
    del values["checksum"]
    values["tensors"] = {"model.weight": ["float32", [2, 4]], "model.bias": ["float32", [2]]}
    manifest.write_text(json.dumps(values))
    assert diff(None, lambda: None, one=one, other=other) == 1
    assert capsys.readouterr().out.splitlines() == [
        "+ model.bias  float32[2]",
        "~ model.weight  float32[2, 3] -> float32[2, 4]",
    ]


def test_words() -> None:
    assert [size(n) for n in (10, 2048, 3 * 2**30)] == ["10 B", "2.0 KiB", "3.0 GiB"]
    assert [age(s) for s in (5, 90, 7200, 200_000)] == ["5 s", "2 min", "2 h", "2 d"]
