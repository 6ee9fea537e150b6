"""Weights & Biases: what its own client writes offline, read back from its files."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import wandb

from dream_trainer.callbacks import CheckpointCallback, LoggerCallback, MediaLoggerCallback
from dream_trainer.configs import CheckpointParameters, RunError, Stopped, WandbLoggingParameters
from dream_trainer.loggers import Audio, Run, Table
from dream_trainer.loggers.wandb import WandbLogger
from tests.runtime import wandb_files
from tests.runtime.tiny import Batch, TinyTrainer, batches, config


@pytest.fixture(autouse=True)
def no_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No key, wherever one may lie, and no server."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.chdir(tmp_path)
    yield
    wandb.teardown()


class Tries(TinyTrainer):
    """Stops at a step, where it is told to."""

    fails_at: int | None = None
    stops_at: int | None = None

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        if self.global_step == self.fails_at:
            raise KeyboardInterrupt
        if self.global_step + 1 == self.stops_at:
            self.is_stopping, self.exit_code = True, 75
        return super().training_step(batch, batch_idx)


def trainer(folder: Path, resume: bool = False, **tracked: Any) -> Tries:
    logging = WandbLoggingParameters(root_dir=str(folder), log_every_n_steps=1, **tracked)

    def media(trainer: Any, batch: Any, result: Any) -> dict[str, Any]:
        return {
            "picture": torch.zeros(3, 4, 5),
            "sound": Audio(torch.zeros(80), rate=8),
            "table": Table(["a"], [[1], [2]]),
            "text": "said",
        }

    made = config(
        callbacks=[CheckpointCallback(), MediaLoggerCallback(media), LoggerCallback()],
        logging=logging,
        val_every_n_steps=2,
    )
    made.checkpoint_parameters = CheckpointParameters(
        root_dir=str(folder), checkpoint_every_n_steps=2, resume="run" if resume else None
    )
    made.experiment, made.project, made.group = "run", "p", "g"
    return Tries(made, batches(6), batches(1, seed=1))


def test_a_run_interrupted_and_resumed_is_one_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = trainer(tmp_path, tags=("a", "b"))
    first.fails_at = 5
    with pytest.raises(KeyboardInterrupt):
        first.fit()
    told = f"wandb: no API key, logging offline. Later: wandb sync {tmp_path}/run/wandb/*"
    assert told in capsys.readouterr().out
    trainer(tmp_path, resume=True).fit()
    one, two = wandb_files.runs(tmp_path / "run")
    (began,), (went_on,) = wandb_files.only(one, "run"), wandb_files.only(two, "run")
    assert began.run_id == went_on.run_id
    assert json.loads((tmp_path / "run/wandb.json").read_text()) == {"id": began.run_id}
    assert (began.project, began.run_group, began.display_name) == ("p", "g", "run")
    assert list(began.tags) == ["a", "b"]
    known = {item.key: json.loads(item.value_json) for item in began.config.update}
    assert known["training_parameters"]["val_every_n_steps"] == 2
    assert known["device_parameters"]["param_dtype"] == "float32"
    codes = [wandb_files.only(path, "exit")[0].exit_code for path in (one, two)]
    assert codes == [130, 0]

    rows = [row for path in (one, two) for row in wandb_files.history(path)]
    losses = [(row["step"], row["train/loss"]) for row in rows if "train/loss" in row]
    # Step 5 was made again, from the checkpoint of step 4: neither is lost.
    assert [step for step, _ in losses] == [1, 2, 3, 4, 5, 5, 6]
    assert losses[4] == losses[5]
    assert [row["step"] for row in rows if "val/loss" in row] == [2, 4, 6]
    steps = [row["step"] for row in wandb_files.history(one)]
    assert steps == sorted(steps)
    metrics = wandb_files.only(one, "metric")
    assert [(m.name or m.glob_name, m.step_metric) for m in metrics] == [
        ("step", ""),
        ("*", "step"),
    ]
    shown = [row for row in rows if row.get("picture/_type") and row["step"] == 6]
    assert [row["picture/_type"] for row in shown] == ["image-file"]
    kinds = {name: row[name] for row in rows for name in row if name.endswith("/_type")}
    assert kinds["sound/_type"] == "audio-file"
    assert kinds["table/_type"] == kinds["text/_type"] == "table-file"


def test_a_new_run_is_another_and_a_stopped_one_is_preempted(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/wandb.json").write_text('{"id": "earlier"}')
    run = trainer(tmp_path, mode="offline")
    run.stops_at = 3
    with pytest.raises(Stopped):
        run.fit()
    (path,) = wandb_files.runs(tmp_path / "run")
    assert wandb_files.only(path, "run")[0].run_id != "earlier"
    assert len(wandb_files.only(path, "preempting")) == 1
    assert wandb_files.only(path, "exit")[0].exit_code == 75


def test_disabled_tracks_nothing(tmp_path: Path) -> None:
    trainer(tmp_path, mode="disabled").fit()
    assert not (tmp_path / "run/wandb.json").exists() and not wandb_files.runs(tmp_path / "run")
    assert (tmp_path / "run/log.jsonl").exists()


class Unreachable:
    """Stands for `wandb.init` where there is no way to the server."""

    def __init__(self) -> None:
        self.modes: list[str] = []

    def __call__(self, mode: str, **options: Any) -> Any:
        self.modes.append(mode)
        if mode == "online":
            raise wandb.errors.CommError("no route to host")

        class Run:
            id = "x"

            def define_metric(self, *args: Any, **options: Any) -> None: ...

        return Run()


@pytest.fixture
def unreachable(monkeypatch: pytest.MonkeyPatch) -> Unreachable:
    found = Unreachable()
    monkeypatch.setattr(wandb, "init", found)
    return found


def described(folder: Path) -> Run:
    return Run(experiment="run", project="p", group="g", folder=folder, config={})


def test_where_there_is_a_key_it_is_online_or_else_offline(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unreachable: Unreachable,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "netrc").write_text(f"machine api.wandb.ai login user password {'x' * 40}\n")
    (tmp_path / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    WandbLogger(WandbLoggingParameters()).start(described(tmp_path))
    assert unreachable.modes == ["online", "offline"]
    assert capsys.readouterr().out == (
        "warning: wandb cannot be reached, logging offline: no route to host\n"
    )
    monkeypatch.setenv("WANDB_MODE", "offline")
    WandbLogger(WandbLoggingParameters()).start(described(tmp_path))
    assert unreachable.modes[2:] == ["offline"]


def test_online_that_was_asked_for_is_an_error(tmp_path: Path, unreachable: Unreachable) -> None:
    with pytest.raises(RunError) as caught:
        WandbLogger(WandbLoggingParameters(mode="online")).start(described(tmp_path))
    assert str(caught.value) == (
        "wandb could not start the run online: no route to host "
        'Set logging_parameters.mode to "offline", or use LoggingParameters.'
    )
