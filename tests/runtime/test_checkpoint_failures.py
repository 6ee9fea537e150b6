"""What is broken, full, slow or another: never a lost run, never a silent one."""

import errno
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dream_trainer.callbacks import Callback, CheckpointCallback
from dream_trainer.callbacks.checkpoint import AsyncCheckpointCallback
from dream_trainer.checkpoint.manifest import MANIFEST, checkpoints, name_of, open_checkpoint
from dream_trainer.checkpoint.store import Store
from dream_trainer.configs import RunError
from tests.runtime.resuming import Event, Plan, crash, saving, stop
from tests.runtime.resuming_trainers import Averages

PLAN = Plan(training={"n_epochs": None, "max_steps": 8})
BOTH = pytest.mark.parametrize("saves", [CheckpointCallback, AsyncCheckpointCallback])


def folder(root: Path) -> Path:
    return root / "run" / "checkpoints"


def steps(root: Path | str) -> list[int]:
    return [c.manifest.step for c in checkpoints(Store(f"{root}/run/checkpoints"))]


def names(root: Path) -> list[str]:
    return sorted(path.name for path in folder(root).iterdir())


@pytest.fixture(scope="module")
def whole() -> list[Event]:
    return PLAN.run()[0]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


DAMAGES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "a flipped bit": ("__0_0.distcp", flip),
    "a truncated file": ("__0_0.distcp", truncate),
    "a missing file": ("__0_0.distcp", Path.unlink),
    "a flipped bit in DCP's metadata": (".metadata", flip),
    "no metadata": (".metadata", Path.unlink),
    "a flipped bit in the manifest": (MANIFEST, flip),
    "a torn manifest": (MANIFEST, tear),
}


class TestDamage:
    @pytest.mark.parametrize("name", DAMAGES)
    def test_is_skipped_and_set_aside(
        self, name: str, tmp_path: Path, whole: list[Event], capsys: pytest.CaptureFixture[str]
    ) -> None:
        before, _ = PLAN.run(saving(tmp_path), crash(4))
        file, damage = DAMAGES[name]
        damage(folder(tmp_path) / name_of(4) / file)
        after, trainer = PLAN.run(saving(tmp_path, resume="run"), stop(5))
        assert trainer.start_step == 3
        assert before[:3] + after == whole[:5]
        told = capsys.readouterr().err
        assert f"warning: {folder(tmp_path)}/{name_of(4)} is skipped: " in told
        assert f"{name_of(4)}.damaged" in names(tmp_path)
        assert steps(tmp_path)[:3] == [5, 4, 3]

    def test_the_same_step_twice(self, tmp_path: Path) -> None:
        PLAN.run(saving(tmp_path), crash(4))
        for _ in range(3):
            flip(folder(tmp_path) / name_of(4) / "__0_0.distcp")
            _, trainer = PLAN.run(saving(tmp_path, resume="run"), crash(4))
            assert trainer.start_step == 3
        assert steps(tmp_path)[0] == 4

    def test_no_manifest_is_no_checkpoint(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        PLAN.run(saving(tmp_path), crash(4))
        (folder(tmp_path) / name_of(4) / MANIFEST).unlink()
        (folder(tmp_path) / name_of(3)).rename(folder(tmp_path) / f"{name_of(3)}.unfinished")
        _, trainer = PLAN.run(saving(tmp_path, 100, resume="run"), stop(5))
        assert trainer.start_step == 2
        told = capsys.readouterr().err
        assert f"{name_of(4)} was never finished: removed" in told
        assert f"{name_of(3)}.unfinished was never finished: removed" in told
        assert names(tmp_path) == [name_of(1), name_of(2), name_of(5)]

    def test_every_one(self, tmp_path: Path) -> None:
        PLAN.run(saving(tmp_path), crash(3))
        for step in (1, 2, 3):
            flip(folder(tmp_path) / name_of(step) / "__0_0.distcp")
        with pytest.raises(RunError, match="No checkpoint of 'run' can be resumed in"):
            PLAN.run(saving(tmp_path, resume="run"))

    def test_every_one_of_a_run_that_need_not_go_on(
        self, tmp_path: Path, whole: list[Event]
    ) -> None:
        PLAN.run(saving(tmp_path), crash(3))
        for step in (1, 2, 3):
            flip(folder(tmp_path) / name_of(step) / "__0_0.distcp")
        again, trainer = PLAN.run(saving(tmp_path, auto_resume="always"), stop(4))
        assert trainer.start_step == 0
        assert again == whole[:4]
        assert steps(tmp_path) == [4, 3, 2, 1]
        assert name_of(3) + ".damaged" in names(tmp_path)

    def test_no_bit_of_a_manifest_can_flip(self, tmp_path: Path) -> None:
        PLAN.run(saving(tmp_path), stop(1))
        store, path = Store(folder(tmp_path)), folder(tmp_path) / name_of(1) / MANIFEST
        whole = open_checkpoint(store, name_of(1))
        assert whole is not None
        text = path.read_bytes()
        for place in range(0, len(text), 3):
            path.write_bytes(text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :])
            found = open_checkpoint(store, name_of(1))
            harmless = found is None or found.manifest == whole.manifest or found.problems()
            assert harmless, text[place - 20 : place + 20]


class Filled(Callback):
    """No file may grow above `limit` bytes while steps `first` to `last` are done."""

    def __init__(self, first: int, last: int, limit: int = 8192) -> None:
        self.first, self.last, self.limit = first, last, limit
        self.before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def pre_train_step(self, trainer: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step + 1 == self.first:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.limit, self.before[1]))
        if trainer.global_step == self.last:
            resource.setrlimit(resource.RLIMIT_FSIZE, self.before)

    def post_fit(self, trainer: Any) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self.before)

    on_interrupt = post_fit


def failing(monkeypatch: pytest.MonkeyPatch, what: str, error: OSError, step: int) -> None:
    """Let the store's method `what` fail for the checkpoint of `step`, at its first attempt."""
    original = getattr(Store, what)
    attempts: list[str] = []

    def fail(self: Store, name: str, *rest: Any) -> Any:
        if name.startswith(name_of(step)) and not attempts:
            attempts.append(name)
            raise error
        return original(self, name, *rest)

    monkeypatch.setattr(Store, what, fail)


FULL = OSError(errno.ENOSPC, "No space left on device")
FAILURES = {
    "the manifest finds no room": ("write", FULL, "OSError: [Errno 28] No space left on device"),
    "no permission": (
        "rename",
        PermissionError(errno.EACCES, "Permission denied"),
        "PermissionError: [Errno 13] Permission denied",
    ),
}


class TestStorage:
    @BOTH
    def test_a_full_disk(
        self, saves: Any, tmp_path: Path, whole: list[Event], capfd: pytest.CaptureFixture[str]
    ) -> None:
        plan = Plan(training=PLAN.training, callbacks=lambda: [Filled(3, 5)])
        events, _ = plan.run(saving(tmp_path, keep_top_k=9), None, saves)
        assert events == whole
        told = [line for line in capfd.readouterr().err.splitlines() if "File too large" in line]
        text = "warning: step {} could not be saved, the previous checkpoint stays: "
        failed = [s for s in range(1, 9) if any(line.startswith(text.format(s)) for line in told)]
        assert {3, 4} <= set(failed) <= {2, 3, 4, 5}  # Behind the back it is a step early.
        assert names(tmp_path) == [name_of(step) for step in range(1, 9) if step not in failed]
        after, _ = PLAN.run(saving(tmp_path, 100, resume="run"))
        assert after == []

    @BOTH
    @pytest.mark.parametrize("name", FAILURES)
    def test_a_failure_is_told(
        self,
        name: str,
        saves: Any,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        what, error, told = FAILURES[name]
        failing(monkeypatch, what, error, step=3)
        PLAN.run(saving(tmp_path), stop(5), saves)
        assert steps(tmp_path) == [5, 4, 2, 1]
        lines = capsys.readouterr().err.splitlines()
        assert [line for line in lines if "step 3 could not be saved" in line and told in line]
        _, trainer = PLAN.run(saving(tmp_path, 100, resume="run"), stop(6))
        assert trainer.start_step == 5

    @BOTH
    def test_the_last_save_is_tried_again(
        self, saves: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        failing(monkeypatch, "write", FULL, step=8)
        PLAN.run(saving(tmp_path), None, saves)
        assert steps(tmp_path)[0] == 8

    @BOTH
    def test_a_run_can_stop_over_it(
        self, saves: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        failing(monkeypatch, "write", FULL, step=3)
        with pytest.raises(RunError, match=r"step 3 could not be saved, .*No space left"):
            PLAN.run(saving(tmp_path, on_failed_save="stop"), None, saves)
        assert steps(tmp_path) == [2, 1]

    @BOTH
    def test_a_bug_in_a_hook_always_ends_it(self, saves: Any, tmp_path: Path) -> None:
        class Broken(Averages):
            def state_dict(self) -> dict[str, Any]:
                raise KeyError("count")

        plan = Plan(training=PLAN.training, callbacks=lambda: [Broken(0.5)])
        with pytest.raises(KeyError, match="count"):
            plan.run(saving(tmp_path), None, saves)

    @pytest.mark.parametrize("scheme", ["memory://", "file://", "local://"])
    def test_a_url(
        self, scheme: str, tmp_path: Path, whole: list[Event], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        url = f"{scheme}{tmp_path}"
        before, _ = PLAN.run(saving(url), crash(4))
        assert steps(url) == [4, 3, 2, 1]
        after, _ = PLAN.run(saving(url, 3, resume="run", keep_top_k=2), None)
        assert before + after == whole
        assert steps(url) == [8, 6]
