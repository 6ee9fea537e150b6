"""The record of a run: what survives a kill, what fails alone, what is added, what is shown.

Of the failure modes: 49 (values that not every rank has), 50 (no read from the device in
steps that are not logged).
"""

import contextlib
import csv
import importlib.util
import json
import os
import subprocess
import sys
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from torch.utils._python_dispatch import TorchDispatchMode

import dream_trainer.loggers as loggers
from dream_trainer.callbacks import (
    Callback,
    LoggerCallback,
    LRLoggerCallback,
    MediaLoggerCallback,
)
from dream_trainer.callbacks.logger import exit_code_of
from dream_trainer.configs import (
    ConfigError,
    LoggingParameters,
    RunError,
    WandbLoggingParameters,
)
from dream_trainer.loggers import Audio, Image, JsonlLogger, Logger, Table
from dream_trainer.loggers.media import as_media
from dream_trainer.metrics import Mean
from tests.conftest import ROOT
from tests.runtime.tiny import Batch, TinyTrainer, batches, config


def run(
    folder: Path,
    *callbacks: Callback,
    trainer: type[TinyTrainer] = TinyTrainer,
    number: int = 3,
    every: int = 1,
    **training: Any,
) -> TinyTrainer:
    logging = LoggingParameters(root_dir=str(folder), log_every_n_steps=every)
    made = config(callbacks=[*callbacks, LoggerCallback()], logging=logging, **training)
    made.experiment = "run"
    made_trainer = trainer(made, batches(number), batches(2, seed=1))
    made_trainer.fit()
    return made_trainer


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "run/log.jsonl").read_text().splitlines()]


def column(folder: Path, name: str) -> list[Any]:
    return [record[name] for record in records(folder) if name in record]


class TestJsonl:
    WHOLE = b'{"step": 1, "a": 1.5}\n'

    @pytest.mark.parametrize(
        ("before", "kept"),
        [
            (b"", b""),
            (WHOLE, WHOLE),
            (WHOLE * 3, WHOLE * 3),
            (WHOLE[:-1], WHOLE),  # Only the end of the line is missing.
            (WHOLE * 2 + WHOLE[:-1], WHOLE * 3),
            (WHOLE + WHOLE[:-2], WHOLE),
            (WHOLE + b"{", WHOLE),
            (b'{"step": 1, "a', b""),
            (WHOLE + b"\0" * 100, WHOLE),
            (WHOLE * 9_000 + b'{"a": "' + b"x" * 200_000, WHOLE * 9_000),
            (WHOLE + b'{"a": "' + b"x" * 200_000 + b'"}', None),
        ],
    )
    def test_a_torn_last_line_is_repaired(
        self, before: bytes, kept: bytes | None, tmp_path: Path
    ) -> None:
        path = tmp_path / "log.jsonl"
        path.write_bytes(before)
        logger = JsonlLogger(tmp_path)
        expected = before + b"\n" if kept is None else kept
        assert path.read_bytes() == expected
        logger.log(2, 0, {"a": 2.0})
        logger.close(0)
        assert path.read_bytes().startswith(expected)
        *_, value, end = (json.loads(line) for line in path.read_text().splitlines())
        assert (value["step"], value["a"], end["event"]) == (2, 2.0, "end")

    def test_a_killed_run_loses_no_line(self, tmp_path: Path) -> None:
        code = (
            "import os, pathlib; from dream_trainer.loggers.jsonl import JsonlLogger\n"
            "log = JsonlLogger(pathlib.Path('.'))\n"
            "[log.log(step, 0, {'a': 1.0}) for step in range(50)]\n"
            "os.kill(os.getpid(), 9)"
        )
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "runtime")}
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment)
        assert done.returncode == -9
        lines = (tmp_path / "log.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == list(range(50))

    def test_a_full_disk_tears_no_line(self, tmp_path: Path) -> None:
        logger = JsonlLogger(tmp_path)
        logger.log(1, 0, {"a": 1.0})
        real = logger.file

        class Full:
            def write(self, line: bytes) -> int:
                return real.write(line[:7])

            def fileno(self) -> int:
                return real.fileno()

        logger.file = Full()  # type: ignore[assignment]
        with pytest.raises(OSError, match="part of the line"):
            logger.log(2, 0, {"a": 2.0})
        logger.file = real
        logger.log(3, 0, {"a": 3.0})
        lines = (tmp_path / "log.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == [1, 3]

    @pytest.mark.parametrize(
        ("exit_code", "goes_on", "event"),
        [(0, False, "end"), (1, False, "interrupt"), (75, True, "end")],
    )
    def test_how_it_ends(self, exit_code: int, goes_on: bool, event: str, tmp_path: Path) -> None:
        JsonlLogger(tmp_path).close(exit_code, goes_on)
        assert json.loads((tmp_path / "log.jsonl").read_text())["event"] == event


class TestTrackers:
    class Fails(Logger):
        name = "Tracker"

        def __init__(self, where: str) -> None:
            self.where = where

        def start(self, run: Any) -> None:
            self._fail("start")

        def log(self, step: int, epoch: int, values: Any) -> None:
            self._fail("log")

        def close(self, exit_code: int, goes_on: bool = False) -> None:
            self._fail("close")

        def _fail(self, where: str) -> None:
            if where == self.where:
                raise ConnectionError("no\nroute")

    @pytest.mark.parametrize("where", ["start", "log", "close"])
    def test_one_that_fails_costs_one_warning(
        self,
        where: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        name = "dream_trainer.callbacks.logger.build_trackers"
        monkeypatch.setattr(name, lambda _: [self.Fails(where)])
        run(tmp_path)
        text = "warning: Tracker lacks a part of this run: no route\n"
        assert capsys.readouterr().err == text
        assert len(column(tmp_path, "train/loss")) == 3
        assert records(tmp_path)[-1]["event"] == "end"

    @pytest.mark.parametrize(
        ("parameters", "text"),
        [
            (LoggingParameters(), None),
            (LoggingParameters(enabled=False, tensorboard=True), None),
            (WandbLoggingParameters(mode="disabled"), None),
            (
                LoggingParameters(tensorboard=True),
                "tensorboard=True needs the package tensorboard, which is not installed. "
                "Run: pip install tensorboard, or set tensorboard=False.",
            ),
            (
                WandbLoggingParameters(),
                "WandbLoggingParameters needs the package wandb, which is not installed. "
                'Run: pip install wandb, or set mode="disabled".',
            ),
        ],
    )
    def test_a_missing_package_is_named_first(
        self,
        parameters: LoggingParameters,
        text: str | None,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ) -> None:
        monkeypatch.setattr(loggers, "find_spec", lambda name: None)
        parameters.root_dir = str(tmp_path)
        made = config(callbacks=[LoggerCallback()], logging=parameters)

        class Unmade(TinyTrainer):
            def configure_models(self) -> None:
                raise ZeroDivisionError

        with pytest.raises((RunError, ZeroDivisionError)) as caught:
            Unmade(made).fit()
        assert str(caught.value) == (text or "")

    def test_mode(self) -> None:
        with pytest.raises(ConfigError) as caught:
            WandbLoggingParameters(mode="dryrun")  # type: ignore[arg-type]
        assert str(caught.value) == (
            'mode=\'dryrun\' is not possible. Use "online", "offline", "disabled" or None.'
        )

    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (KeyboardInterrupt(), 130),
            (ValueError(), 1),
            (SystemExit(75), 75),
            (SystemExit(None), 0),
            (SystemExit("text"), 1),
            (None, 1),
        ],
    )
    def test_exit_codes(self, error: BaseException | None, code: int) -> None:
        assert exit_code_of(error) == code


class Reads(TorchDispatchMode):
    """Counts reads of single numbers from tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


class TestCost:
    def test_steps_that_are_not_logged_read_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reductions: list[int] = []
        reads: dict[int, int] = {}
        reduce = Mean.reduce

        def counted(self: Mean) -> dict[str, float]:
            reductions.append(len(self.sums))
            return reduce(self)

        monkeypatch.setattr(Mean, "reduce", counted)

        class Watched(TinyTrainer):
            def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
                with Reads() as mode:
                    result = super().training_step(batch, batch_idx)
                reads[self.global_step + 1] = mode.count
                return result

        with Reads() as outer:
            run(
                tmp_path,
                LRLoggerCallback(),
                trainer=Watched,
                number=12,
                every=5,
                val_steps_per_epoch=0,
                startup_checks=False,
            )
        assert column(tmp_path, "step") == [1, 5, 10, 12]
        assert reductions == [3, 3, 3, 3, 0]  # The last one: nothing of the epoch as a whole.
        assert set(reads.values()) == {0} and outer.count <= 4  # One a logged step.


class TestAlsoLog:
    def test_joins_the_record(self, tmp_path: Path) -> None:
        class Adds(Callback):
            def post_optimizer_step(self, trainer: Any, optimizer: Any) -> None:
                trainer.also_log({"own/a": 0.0, "own/none": None})
                trainer.also_log({"own/a": torch.tensor(trainer.global_step + 1.0)})

            def post_validation_step(
                self, trainer: Any, result: Any, batch: Any, batch_idx: int
            ) -> None:
                trainer.also_log({"own/b": 7.0})

            @contextlib.contextmanager
            def train_context(self, trainer: Any) -> Iterator[None]:
                yield
                trainer.also_log({"own/c": 8.0})

        trainer = run(tmp_path, Adds(), number=4, every=3)
        found = [(r["step"], r["own/a"]) for r in records(tmp_path) if "own/a" in r]
        assert found == [(1, 1.0), (3, 3.0), (4, 4.0)]
        assert column(tmp_path, "own/b") == [7.0] and column(tmp_path, "own/c") == [8.0]
        assert all("train/loss" in r for r in records(tmp_path) if "own/a" in r)
        assert all("val/loss" in r for r in records(tmp_path) if "own/b" in r)
        assert trainer.logged["own/b"] == 7.0

    def test_nothing_is_left_over_from_steps_that_are_not_logged(self, tmp_path: Path) -> None:
        class Adds(Callback):
            def post_train_step(
                self, trainer: Any, result: Any, batch: Any, batch_idx: int
            ) -> None:
                if trainer.global_step == 2:
                    trainer.also_log({"stale": 1.0})

        run(tmp_path, Adds(), number=4, every=3)
        assert column(tmp_path, "stale") == []


class TestLearningRate:
    def test_the_rate_that_the_step_was_made_with(self, tmp_path: Path) -> None:
        class Decays(TinyTrainer):
            def configure_schedulers(self) -> Any:
                decay = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda n: 0.5**n)
                return {self.optimizer: decay}

        added: list[int] = []

        class Counts(Decays):
            def also_log(self, values: Any) -> None:
                added.append(self.global_step + 1)
                super().also_log(values)

        run(tmp_path, LRLoggerCallback(), trainer=Counts, number=4, every=2)
        assert added == [1, 2, 4]
        assert column(tmp_path, "lr/optimizer") == [0.5, 0.25, 0.0625]

    def test_groups(self, tmp_path: Path) -> None:
        class Groups(TinyTrainer):
            def configure_optimizers(self) -> dict[nn.Module, torch.optim.Optimizer]:
                first, second = self.model.layers
                groups: list[dict[str, Any]] = [
                    {"params": first.parameters(), "lr": torch.tensor(0.25), "name": "slow"},
                    {"params": second.parameters(), "lr": 0.5},
                ]
                self.optimizer = torch.optim.SGD(groups)
                return {self.model: self.optimizer}

        run(tmp_path, LRLoggerCallback(), trainer=Groups, number=1)
        (record,) = [r for r in records(tmp_path) if "train/loss" in r]
        rates = {name: value for name, value in record.items() if name.startswith("lr/")}
        assert rates == {"lr/optimizer/slow": 0.25, "lr/optimizer/1": 0.5}

    def test_groups_that_are_alike_until_they_differ(self, tmp_path: Path) -> None:
        class Alike(TinyTrainer):
            def configure_optimizers(self) -> dict[nn.Module, torch.optim.Optimizer]:
                first, second = self.model.layers
                groups = [{"params": first.parameters()}, {"params": second.parameters()}]
                self.optimizer = torch.optim.SGD(groups, lr=0.5)
                return {self.model: self.optimizer}

            def configure_schedulers(self) -> dict[torch.optim.Optimizer, LRScheduler]:
                halved = [lambda step: 1.0, lambda step: 1.0 if step != 1 else 0.5]
                return {self.optimizer: LambdaLR(self.optimizer, halved)}

        run(tmp_path, LRLoggerCallback(), trainer=Alike, number=3)
        told = [
            {name: value for name, value in record.items() if name.startswith("lr/")}
            for record in records(tmp_path)
            if "train/loss" in record
        ]
        apart = {"lr/optimizer/0": 0.5, "lr/optimizer/1": 0.25}
        assert told == [{"lr/optimizer": 0.5}, apart, apart | {"lr/optimizer/1": 0.5}]


class TestMedia:
    def test_files_where_nothing_tracks_the_run(self, tmp_path: Path) -> None:
        class Shows(TinyTrainer):
            def validation_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
                gray = torch.tensor([[0.0, 1.0, 0.5]])
                table = Table(["a", "b"], [[1, "x,y"], [batch_idx, None]])
                media = {"gray": [gray, gray], "table": table, "text": f"n {batch_idx}"}
                return {**super().validation_step(batch, batch_idx), "media": media}

        def sound(trainer: Any, batch: Any, result: Any) -> dict[str, Any]:
            assert "val/loss" in result
            return {"sound": Audio(torch.tensor([0.0, 1.0, -1.0, 2.0]), rate=8)}

        run(tmp_path, MediaLoggerCallback(sound, limit=3), trainer=Shows, num_sanity_val_steps=1)
        folder = tmp_path / "run" / "media"
        assert sorted(str(p.relative_to(folder)) for p in folder.rglob("*.*")) == [
            *(f"gray/step-00000003-{n}.png" for n in range(3)),  # Of 2 x 2, and none of step 0.
            "sound/step-00000003-0.wav",
            *(f"table/step-00000003-{n}.csv" for n in range(2)),
            *(f"text/step-00000003-{n}.txt" for n in range(2)),
        ]
        assert (folder / "text/step-00000003-1.txt").read_text() == "n 1"
        with (folder / "table/step-00000003-0.csv").open(newline="") as file:
            assert list(csv.reader(file)) == [["a", "b"], ["1", "x,y"], ["0", ""]]
        with wave.open(str(folder / "sound/step-00000003-0.wav")) as sounded:
            assert sounded.getframerate() == 8 and sounded.getnframes() == 4
            samples = torch.frombuffer(bytearray(sounded.readframes(4)), dtype=torch.int16)
        assert samples.tolist() == [0, 32_767, -32_767, 32_767]
        assert column(tmp_path, "val/loss") and not column(tmp_path, "media")

    @pytest.mark.parametrize("shape", [(5, 7), (1, 5, 7), (3, 5, 7)])
    def test_pixels(self, shape: tuple[int, ...], tmp_path: Path) -> None:
        pictures = pytest.importorskip("PIL.Image")
        pixels = torch.randint(256, shape, dtype=torch.uint8)
        path = loggers.media.write(Image(pixels), tmp_path / "x")
        with pictures.open(path) as picture:
            assert picture.size == (7, 5)
            values = torch.tensor(list(picture.tobytes()), dtype=torch.uint8)
        expected = pixels.reshape(-1, 5, 7).permute(1, 2, 0).flatten()
        assert values.equal(expected)

    def test_a_batch_of_pictures_is_as_many(self) -> None:
        assert len(as_media(torch.zeros(4, 3, 2, 2), "x")) == 4

    def test_what_cannot_be_shown(self) -> None:
        with pytest.raises(RunError) as caught:
            as_media({"a": 1}, "first")
        assert str(caught.value) == (
            "'first' is dict, which cannot be shown. Give text, a tensor of pixels, "
            "or Image, Audio or Table of dream_trainer.loggers."
        )
        with pytest.raises(RunError) as caught:
            Image(torch.zeros(2, 5, 5)).bytes()
        assert str(caught.value) == (
            "An image of shape (2, 5, 5) cannot be shown. "
            "Give (height, width), (1, height, width) or (3, height, width)."
        )

    def test_a_picture_that_fails_costs_a_warning(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run(tmp_path, MediaLoggerCallback(lambda *_: {"odd": torch.zeros(2, 5, 5), "fine": "x"}))
        error = capsys.readouterr().err
        assert error.startswith("warning: 'odd' is not shown: An image of shape (2, 5, 5)")
        assert len(list((tmp_path / "run/media/fine").iterdir())) == 1


def test_what_is_optional_is_not_imported() -> None:
    assert importlib.util.find_spec("wandb") and importlib.util.find_spec("tensorboard")
    code = (
        "import sys; from tests.runtime.tiny import *; from dream_trainer import callbacks\n"
        "made = config(); made.callbacks = None; made.logging_parameters.enabled = False\n"
        "TinyTrainer(made, batches(1), batches(1)).fit()\n"
        "print('found', *sorted({'wandb', 'tensorboard', 'torchmetrics'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'runtime'}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "found", done.stderr
