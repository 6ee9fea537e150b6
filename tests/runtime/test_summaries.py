"""The summaries of a run and its models, as callbacks and as `python train.py summarize`."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from dream_trainer.callbacks import ModelSummary, TrainerSummary
from dream_trainer.callbacks.model_summary import Row, model_rows, short
from dream_trainer.callbacks.trainer_summary import trainer_rows
from dream_trainer.configs import ConfigError, DeviceParameters
from tests.conftest import run_bounded
from tests.runtime import sized
from tests.runtime.tiny import TinyTrainer, batches, config, set_up

SCRIPT = Path(sized.__file__)

MODEL_TABLE = """\
         models on mesh one device; here: rank 0
module  kind       total trained here bytes dtype   split
model   Model         30      10   30   120 float32
 layers ModuleList    30      10   30   120 float32
  0     Linear        20       0   20    80 float32
  1     Linear        10      10   10    40 float32
"""


class Frozen(TinyTrainer):
    def configure_models(self) -> None:
        super().configure_models()
        self.model.layers[0].requires_grad_(False)


def sized_rows(device: dict[str, Any], depth: int = 2) -> list[Row]:
    parameters = DeviceParameters(**sized.FLOAT32, **device)
    return model_rows(set_up(sized.Trainer(sized.config(parameters))), depth)


def stripped(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


class TestModel:
    def test_printed_once_before_training(self, capsys: pytest.CaptureFixture[str]) -> None:
        Frozen(config(callbacks=[ModelSummary()]), batches(2)).fit()
        assert stripped(capsys.readouterr().out) == MODEL_TABLE

    def test_depth(self) -> None:
        trainer = set_up(TinyTrainer(config()))
        names = [[row.name for row in model_rows(trainer, depth)] for depth in (0, 1, 2)]
        assert names == [["model"], ["model", " layers"], ["model", " layers", "  0", "  1"]]

    def test_equal_neighbours_share_a_line(self) -> None:
        model, embed, layers, blocks, head = sized_rows({})
        assert (blocks.name, blocks.kind) == ("  0..3", "4 x Block")
        assert blocks.total == layers.total == model.total - embed.total - head.total == 33_664
        assert blocks.local_bytes == 4 * 33_664

    def test_a_layer_that_differs_has_its_own(self) -> None:
        class One(sized.Trainer):
            def configure_models(self) -> None:
                super().configure_models()
                self.model.layers[2].up = nn.Linear(32, 96, bias=False)

        trainer = One(sized.config(DeviceParameters(**sized.FLOAT32)))
        rows = model_rows(set_up(trainer), depth=2)
        assert [row.name for row in rows][3:6] == ["  0..1", "  2", "  3"]

    @pytest.mark.parametrize(
        ("device", "share", "split"),
        [
            ({"dp_replicate": 2}, 1, ""),
            ({"dp_shard": 2}, 2, "dp_shard:0"),
            ({"tensor_parallel": 2}, 2, "tp:0"),
            ({"dp_shard": 2, "tensor_parallel": 2}, 4, "dp_shard:0 tp:0"),
        ],
    )
    def test_what_this_rank_holds(
        self, device: dict[str, int], share: int, split: str, fake_world: Any
    ) -> None:
        with fake_world(1, max(2, share)):
            rows = {row.name.strip(): row for row in sized_rows(device)}
        head = rows["head"]
        assert (head.total, head.local, head.split) == (2048, 2048 // share, split)
        assert rows["model"].kind == "Model" and rows["0..3"].kind == "4 x Block"
        if "tensor_parallel" in device:  # Some along rows, some along columns, some not at all.
            assert rows["0..3"].split == " ".join(axis.split(":")[0] for axis in split.split())

    def test_checkpointed_blocks_are_shown_as_they_are(self) -> None:
        class Wrapped(sized.Trainer):
            def apply_activation_checkpointing(self) -> None:
                from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
                    checkpoint_wrapper,
                )

                for index, layer in enumerate(self.model.layers):
                    self.model.layers[index] = checkpoint_wrapper(layer)

        device = DeviceParameters(**sized.FLOAT32, checkpoint_activations=True)
        rows = model_rows(set_up(Wrapped(sized.config(device))), depth=3)
        assert [row.name.strip() for row in rows][3:5] == ["0..3", "norm"]
        assert rows[3].kind == "4 x Block"

    def test_numbers(self) -> None:
        numbers = (0, 999, 1_000, 49_920, 999_499, 999_600, 1_048_576, 70_000_000_000)
        expected = ["0", "999", "1k", "49.9k", "999k", "1M", "1.05M", "70G"]
        assert [short(number) for number in numbers] == expected

    def test_refused(self) -> None:
        with pytest.raises(ConfigError) as caught:
            ModelSummary(depth=-1)
        assert str(caught.value) == "depth=-1 is not possible. Use a whole number from 0."


class TestRun:
    def rows(self, device: DeviceParameters, **training: Any) -> dict[str, str]:
        trainer = TinyTrainer(config(device, [TrainerSummary(), ModelSummary()], **training))
        return trainer_rows(set_up(trainer), trainer.config)

    def test_one_device(self) -> None:
        settings = {"param_dtype": "bfloat16", "compile_model": False}
        rows = self.rows(DeviceParameters(**settings), max_steps=7, val_every_n_steps=2)
        assert rows.pop("processes").startswith("1 on cpu, ")
        assert rows == {
            "mesh": "one device",
            "precision": "bfloat16, reduced in float32",
            "model": "as it is",
            "batch": "the loader's x 1 data rank x 1 accumulated",
            "length": "7 steps at most, validated every 2 steps",
            "optimizer": "SGD\nlr 0.5, weight decay 0: 30 parameters",
            "callbacks": "TrainerSummary, ModelSummary",
        }

    def test_a_mesh(self, fake_world: Any) -> None:
        class Loaded(list[Any]):
            batch_size = 8

        with fake_world(0, 4):
            device = DeviceParameters.FSDP(**sized.FLOAT32)
            settings = config(device, gradient_accumulation_steps=2, n_epochs=3)
            settings.callbacks = None
            trainer = set_up(TinyTrainer(settings, Loaded(batches(4))))
            rows = trainer_rows(trainer, settings)
        assert rows["batch"] == "8 x 4 data ranks x 2 accumulated = 64"
        assert rows["mesh"] == "dp_shard=4" and rows["model"] == "sharded"
        assert rows["length"] == "3 epochs, validated after each epoch"
        assert "ProgressBar" in rows["callbacks"] and "LoggerCallback" in rows["callbacks"]

    def test_printed_once(self, capsys: pytest.CaptureFixture[str]) -> None:
        trainer = TinyTrainer(config(callbacks=[TrainerSummary()], n_epochs=2), batches(2))
        trainer.fit()
        lines = stripped(capsys.readouterr().out).splitlines()
        assert lines[0].strip() == f"run {trainer.experiment}"
        assert lines[2] == "mesh       one device"
        assert sum("mesh" in line for line in lines) == 1
        assert max(map(len, lines)) <= 80


class TestCommand:
    def summarize(self, folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
        # As `cli` does: the command registers itself when it is imported.
        code = (
            "import sys, dream_trainer.utils.summary_command\n"
            "from tests.runtime.sized import CONFIGS, cli, main\n"
            "cli(main, CONFIGS)"
        )
        line = [sys.executable, "-c", code, "summarize", *options]
        return run_bounded(line, cwd=folder, timeout=60, env={"COLUMNS": "80"})

    def test_a_mesh_of_many_ranks_on_this_machine(self, tmp_path: Path) -> None:
        sizes = ["dp_shard=4", "tensor_parallel=2"]
        sets = [part for size in sizes for part in ("--set", f"device_parameters.{size}")]
        done = self.summarize(tmp_path, "--config", "fsdp", "--depth", "1", *sets)
        assert done.returncode == 0, done.stdout + done.stderr
        lines = stripped(done.stdout).splitlines()
        assert "mesh       dp_shard=4 x tp=2" in lines
        assert "processes  8 on cpu" in done.stdout
        assert any(line.split() == HEAD for line in lines), done.stdout
        assert max(map(len, lines)) <= 80
        assert list(tmp_path.iterdir()) == []  # Nothing ran, nothing was written.

    def test_what_does_not_fit(self, tmp_path: Path) -> None:
        done = self.summarize(tmp_path, "--config", "tp", "--world-size", "3")
        assert done.returncode == 1 and done.stdout == ""
        assert done.stderr.endswith(
            "error: dp_replicate(1) * dp_shard(1) * tp(2) = 2, but WORLD_SIZE is 3. Launch 2, or "
            "set tensor_parallel=3.\n"
        )


HEAD = ["head", "Linear", "2.05k", "2.05k", "256", "1.02k", "float32", "dp_shard:0", "tp:0"]


def test_the_command_imports_nothing_heavy() -> None:
    code = (
        "import sys, dream_trainer.utils.commands\n"
        "before = set(sys.modules)\n"
        "import dream_trainer.utils.summary_command\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new & {'rich', 'copier', 'safetensors', 'fsspec'}),\n"
        "      'dream_trainer.simulate' in sys.modules)"
    )
    done = run_bounded([sys.executable, "-c", code], cwd=SCRIPT.parent, timeout=60)
    assert done.stdout == "[] False\n", done.stderr
