"""Checkpoints on disk: which count, which are damaged, which are best, which go."""

import dataclasses
import json
from pathlib import Path

import pytest

from dream_trainer.checkpoint.manifest import (
    MANIFEST,
    UNFINISHED,
    Checkpoint,
    Manifest,
    checkpoints,
    find,
    name_of,
    open_checkpoint,
    ranked,
    superfluous,
    unfinished,
)
from dream_trainer.checkpoint.store import Store
from dream_trainer.configs import RunError

AXES = {"pp": 1, "dp_replicate": 1, "dp_shard": 2, "cp": 1, "tp": 1}


def manifest(step: int, **metrics: float) -> Manifest:
    return Manifest(
        step=step,
        epoch=0,
        experiment="run",
        created=1.5,
        world_size=2,
        axes=AXES,
        metrics=metrics,
        tensors={"model.weight": ("float32", [2, 3])},
    )


def write(folder: Path, step: int, **metrics: float) -> Checkpoint:
    """A finished checkpoint with one file."""
    store = Store(folder)
    place = folder / name_of(step)
    place.mkdir(parents=True)
    (place / "data").write_bytes(b"0123456789")
    files = {"data": (10, store.checksum(f"{name_of(step)}/data"))}
    finished = dataclasses.replace(manifest(step, **metrics), files=files)
    store.write(f"{name_of(step)}/{MANIFEST}", finished.as_json())
    return Checkpoint(store, name_of(step), finished)


class TestManifest:
    def test_there_and_back(self) -> None:
        written = manifest(7, loss=0.25)
        assert Manifest.from_json(written.as_json()).metrics == {"loss": 0.25}
        assert Manifest.from_json(written.as_json()).step == 7

    @pytest.mark.parametrize(
        "text", [b"", b"{", b"[]", b"{}", b'{"format": 99}', b'{"format": 1}']
    )
    def test_what_is_none(self, text: bytes) -> None:
        with pytest.raises(ValueError):
            Manifest.from_json(text)

    def test_fields_of_a_later_version_are_left_out(self) -> None:
        values = json.loads(manifest(3).as_json())
        del values["checksum"]
        assert Manifest.from_json(json.dumps(values | {"colour": "red"}).encode()).step == 3


class TestFolder:
    def test_only_what_is_finished_counts(self, tmp_path: Path) -> None:
        for step in (5, 20, 100):
            write(tmp_path, step)
        (tmp_path / name_of(30)).mkdir()
        (tmp_path / (name_of(40) + UNFINISHED)).mkdir()
        write(tmp_path, 50).set_aside()
        (tmp_path / "notes").mkdir()
        (tmp_path / "step-7").mkdir()
        store = Store(tmp_path)
        assert [found.manifest.step for found in checkpoints(store)] == [100, 20, 5]
        assert sorted(unfinished(store)) == [name_of(30), name_of(40) + UNFINISHED]

    def test_no_folder(self, tmp_path: Path) -> None:
        assert checkpoints(Store(tmp_path / "none")) == []
        assert unfinished(Store(tmp_path / "none")) == []

    def test_a_torn_manifest_is_none(self, tmp_path: Path) -> None:
        checkpoint = write(tmp_path, 5)
        path = tmp_path / checkpoint.name / MANIFEST
        path.write_bytes(path.read_bytes()[:-5])
        assert open_checkpoint(Store(tmp_path), checkpoint.name) is None
        assert unfinished(Store(tmp_path)) == [checkpoint.name]

    def test_removing_takes_the_manifest_first(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        checkpoint = write(tmp_path, 5)

        def killed(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(type(checkpoint.store.fs), "rm", killed)
        with pytest.raises(KeyboardInterrupt):
            checkpoint.remove()
        assert (tmp_path / checkpoint.name / "data").exists()
        assert checkpoints(Store(tmp_path)) == []


class TestVerification:
    def test_whole(self, tmp_path: Path) -> None:
        assert write(tmp_path, 5).problems() == []

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            (None, "data is missing"),
            (b"012345678", "data has 9 bytes of 10"),
            (b"0123456780", "data is damaged: its checksum has changed"),
        ],
    )
    def test_damaged(self, tmp_path: Path, content: bytes | None, told: str) -> None:
        checkpoint = write(tmp_path, 5)
        path = tmp_path / checkpoint.name / "data"
        path.unlink() if content is None else path.write_bytes(content)
        assert checkpoint.problems() == [told]

    def test_ranks_share_the_reading(self, tmp_path: Path) -> None:
        checkpoint = write(tmp_path, 5)
        (tmp_path / checkpoint.name / "data").write_bytes(b"0123456780")
        assert checkpoint.problems(0, 2) and not checkpoint.problems(1, 2)


class TestRanking:
    def test_by_metric_and_by_age(self, tmp_path: Path) -> None:
        values = {1: 0.5, 2: 0.1, 3: float("nan"), 4: 0.9}
        found = [write(tmp_path, step, loss=value) for step, value in values.items()]
        found.append(write(tmp_path, 5))

        def steps(kept: list[Checkpoint]) -> list[int]:
            return [checkpoint.manifest.step for checkpoint in kept]

        assert steps(ranked(found, "loss", "min")) == [2, 1, 4, 5, 3]
        assert steps(ranked(found, "loss", "max")) == [4, 1, 2, 5, 3]
        assert steps(ranked(found, "loss", "last")) == [5, 4, 3, 2, 1]
        assert steps(superfluous(found, 2, "loss", "min")) == [4, 3]
        assert steps(superfluous(found, 2, "loss", "last")) == [3, 2, 1]
        assert superfluous(found, 9, "loss", "min") == []

    def test_find(self, tmp_path: Path) -> None:
        folder = tmp_path / "run" / "checkpoints"
        write(folder, 1, loss=0.1)
        write(folder, 2, loss=0.2)
        run = str(folder.parent)
        for source in (run, f"{run}/", str(folder)):
            assert find(source).manifest.step == 2
            assert find(source, "loss", "min").manifest.step == 1
        assert find(str(folder / name_of(1))).manifest.step == 1
        with pytest.raises(RunError, match="holds no finished checkpoint"):
            find(str(tmp_path / "none"))
        with pytest.raises(RunError, match=r"knows 'acc', by which .* They know: loss\."):
            find(run, "acc", "max", demanded=True)
        assert find(run, "acc", "max").manifest.step == 2


def test_a_store_in_memory() -> None:
    store = Store("memory://bucket/run/checkpoints")
    assert not store.is_local and store.folders() == []
    store.write(f"{name_of(3)}/{MANIFEST}", manifest(3).as_json())
    assert [found.manifest.step for found in checkpoints(store)] == [3]
    checkpoints(store)[0].set_aside()
    assert checkpoints(store) == []
