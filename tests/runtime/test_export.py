"""Weights out: what is written, under which names, and never half."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from dream_trainer import DreamTrainerConfig
from dream_trainer.callbacks.export import ExportCallback
from dream_trainer.callbacks.load_partial_checkpoint import LoadPartialCheckpointCallback
from dream_trainer.checkpoint import sources
from dream_trainer.checkpoint.export import Export, Target, export
from dream_trainer.configs import CheckpointParameters, RunError
from dream_trainer.utils.cli import cli
from tests.runtime.made_weights import drawn, under, write_checkpoint
from tests.runtime.tiny import Model, TinyTrainer, batches, config, set_up

State = dict[str, Tensor]


@pytest.fixture
def weights() -> State:
    return drawn(Model())


@pytest.fixture
def run(tmp_path: Path, weights: State) -> Path:
    """A run with one checkpoint."""
    write_checkpoint(tmp_path, under("model", weights), metrics={"val/loss": 1.0})
    return tmp_path / "run"


def read_folder(folder: Path) -> State:
    found: State = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            assert opened.metadata() == {"format": "pt"}
            found |= {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    return found


def assert_equal(found: State, expected: State) -> None:
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)


def refusal(source: Path, target: Target, **options: Any) -> str:
    with pytest.raises(RunError) as error:
        export(str(source), target, **options)
    return str(error.value)


class TestTorchFile:
    def test_names_without_the_attribute(self, run: Path, weights: State, tmp_path: Path) -> None:
        output = tmp_path / "new" / "model.pt"
        told = export(str(run), Target(output=output, format="pt"))
        assert_equal(torch.load(output), weights)
        assert str(told) == f"4 tensors, 120 bytes -> {output}"
        assert [path.name for path in output.parent.iterdir()] == ["model.pt"]

    def test_an_older_export_is_replaced(self, run: Path, weights: State, tmp_path: Path) -> None:
        output = tmp_path / "model.pt"
        output.write_text("old")
        export(str(run), Target(output=output, format="pt"))
        assert_equal(torch.load(output), weights)

    def test_several_models_keep_their_attributes(self, tmp_path: Path) -> None:
        state = under("generator", drawn(Model())) | under("critic", drawn(Model(), 6))
        write_checkpoint(tmp_path, state)
        export(str(tmp_path / "run"), Target(output=tmp_path / "model.pt", format="pt"))
        assert_equal(torch.load(tmp_path / "model.pt"), state)

    def test_dtypes_stay(self, tmp_path: Path) -> None:
        state = {"model.a": torch.ones(3, dtype=torch.bfloat16), "model.b": torch.tensor(3)}
        write_checkpoint(tmp_path, state)
        export(str(tmp_path / "run"), Target(output=tmp_path / "model.pt", format="pt"))
        found = torch.load(tmp_path / "model.pt")
        assert {name: tensor.dtype for name, tensor in found.items()} == {
            "a": torch.bfloat16,
            "b": torch.int64,
        }


class TestSafetensors:
    def test_shards(self, run: Path, weights: State, tmp_path: Path) -> None:
        output = tmp_path / "out"
        target = Target(output=output, format="safetensors", shard_bytes=50)
        export(str(run), target)
        assert_equal(read_folder(output), weights)
        files = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
        index = "model.safetensors.index.json"
        assert sorted(path.name for path in output.iterdir()) == [*files, index]
        assert json.loads((output / index).read_text()) == {
            "metadata": {"total_size": 120},
            "weight_map": {
                "layers.0.weight": files[0],
                "layers.0.bias": files[1],
                "layers.1.weight": files[1],
                "layers.1.bias": files[2],
            },
        }

    def test_a_layout(self, run: Path, weights: State, tmp_path: Path) -> None:
        layout = {key: f"theirs.{key}" for key in weights}
        target = Target(output=tmp_path / "out", format="safetensors", layout=(layout, {"a": 1}))
        export(str(run), target)
        assert_equal(read_folder(tmp_path / "out"), under("theirs", weights))
        assert json.loads((tmp_path / "out/config.json").read_text()) == {"a": 1}

    def test_a_layout_that_leaves_something_out(self, run: Path, tmp_path: Path) -> None:
        target = Target(
            output=tmp_path / "out", format="safetensors", layout=({"layers.0.bias": "x"}, {})
        )
        assert refusal(run, target) == (
            "hugging_face_layout names 1 tensors, but not layers.0.weight. Add it there."
        )
        assert not (tmp_path / "out").exists()

    def test_no_more_than_a_shard_in_memory(
        self, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read: list[int] = []
        whole = sources.CheckpointWeights.read

        def noted(self: Any, into: State) -> None:
            read.append(sum(tensor.nbytes for tensor in into.values()))
            whole(self, into)

        monkeypatch.setattr(sources.CheckpointWeights, "read", noted)
        export(str(run), Target(output=tmp_path / "out", format="safetensors", shard_bytes=64))
        assert sum(read) == 120
        assert max(read) <= 64

    def test_without_the_library(
        self, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "safetensors.torch", None)
        target = Target(output=tmp_path / "out", format="safetensors")
        assert refusal(run, target) == (
            f"{tmp_path}/out needs safetensors. Install it: pip install safetensors."
        )


class TestPlace:
    def test_a_folder_that_is_there(self, run: Path, tmp_path: Path) -> None:
        told = f"{tmp_path} is a folder already. Name another, or remove it."
        assert refusal(run, Target(output=tmp_path, format="pt")) == told
        assert refusal(run, Target(output=tmp_path, format="safetensors")) == told

    def test_a_file_where_a_folder_goes(self, run: Path, tmp_path: Path) -> None:
        (tmp_path / "out").write_text("mine")
        assert refusal(run, Target(output=tmp_path / "out", format="safetensors")) == (
            f"{tmp_path}/out is a file; safetensors make a folder. Name another."
        )

    @pytest.mark.parametrize("format", ["pt", "safetensors"])
    def test_never_half_there(
        self, format: Any, run: Path, weights: State, tmp_path: Path, monkeypatch: Any
    ) -> None:
        target = Target(output=tmp_path / "out", format=format, shard_bytes=50)
        with monkeypatch.context() as patch:
            patch.setattr(Export, "finish", lambda self: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                export(str(run), target)
        assert not target.output.exists()
        assert target.unfinished.exists()
        export(str(run), target)
        assert not target.unfinished.exists()
        found = torch.load(target.output) if format == "pt" else read_folder(target.output)
        assert_equal(found, weights)

    def test_a_damaged_checkpoint(self, run: Path, tmp_path: Path) -> None:
        checkpoint = run / "checkpoints/step-00000001"
        file = checkpoint / "__0_0.distcp"
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
        assert refusal(run, Target(output=tmp_path / "model.pt", format="pt")) == (
            f"{checkpoint} is damaged: __0_0.distcp is damaged: its checksum has changed. "
            "Use another checkpoint."
        )
        assert not (tmp_path / "model.pt").exists()

    def test_others_may_read_it(self, run: Path, tmp_path: Path) -> None:
        """As much as they may read any new file."""
        (tmp_path / "any").touch()
        export(str(run), Target(output=tmp_path / "out", format="safetensors"))
        export(str(run), Target(output=tmp_path / "model.pt", format="pt"))
        made = [*(tmp_path / "out").iterdir(), tmp_path / "model.pt"]
        assert {p.stat().st_mode for p in made} == {(tmp_path / "any").stat().st_mode}


class TestCommand:
    @pytest.fixture
    def run(self, tmp_path: Path) -> Path:
        """The newest of its three checkpoints is neither the best nor the worst."""
        for step, loss in ((1, 1.0), (2, 3.0), (3, 2.0)):
            state = {"model.a": torch.tensor(float(step))}
            write_checkpoint(tmp_path, state, step=step, metrics={"train/loss": loss, "x": -loss})
        return tmp_path / "run"

    def command(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *arguments: object,
        layout: Any = None,
        parameters: CheckpointParameters | None = None,
    ) -> int:
        class Trainer(TinyTrainer):
            def hugging_face_layout(self) -> Any:
                return layout

        def main(config: DreamTrainerConfig) -> None:
            Trainer(config).fit()

        monkeypatch.setattr(sys, "argv", ["train.py", "export", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli(main, replace(config(), checkpoint_parameters=parameters))
        return int(end.value.code or 0)

    @pytest.mark.parametrize(
        ("options", "step"),
        [
            ([], 3),
            (["--resume-mode", "last"], 3),
            (["--resume-mode", "min"], 1),
            (["--resume-mode", "max"], 2),
            (["--resume-mode", "min", "--monitor", "x"], 2),
        ],
    )
    def test_which_checkpoint(
        self, options: list[str], step: int, run: Path, tmp_path: Path, monkeypatch: Any
    ) -> None:
        output = tmp_path / "model.pt"
        paths = ("--checkpoint-path", run, "--output-path", output)
        assert self.command(monkeypatch, *paths, *options) == 0
        assert torch.load(output)["a"] == step

    def test_the_configuration_chooses(self, run: Path, tmp_path: Path, monkeypatch: Any) -> None:
        output = tmp_path / "model.pt"
        paths = ("--checkpoint-path", run, "--output-path", output)
        parameters = CheckpointParameters(resume_mode="max", monitor="x")
        assert self.command(monkeypatch, *paths, parameters=parameters) == 0
        assert torch.load(output)["a"] == 1

    def test_safetensors(
        self, run: Path, tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        paths = ("--checkpoint-path", run, "--output-path", tmp_path / "out")
        layout = ({"a": "b"}, {"model_type": "mine"})
        assert self.command(monkeypatch, *paths, "--max-shard-size", "1MB", layout=layout) == 0
        assert list(read_folder(tmp_path / "out")) == ["b"]
        assert (tmp_path / "out/config.json").exists()
        assert capsys.readouterr().out == f"1 tensors, 4 bytes -> {tmp_path}/out\n"

    def test_nothing_there(
        self, tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        paths = ("--checkpoint-path", tmp_path, "--output-path", tmp_path / "model.pt")
        assert self.command(monkeypatch, *paths) == 1
        assert capsys.readouterr().err.startswith(
            f"error: {tmp_path} holds no finished checkpoint."
        )

    def test_no_size(self, run: Path, tmp_path: Path, monkeypatch: Any) -> None:
        paths = ("--checkpoint-path", run, "--output-path", tmp_path / "model.pt")
        assert self.command(monkeypatch, *paths, "--max-shard-size", "big") == 2


class TestCallbacks:
    @pytest.mark.parametrize("format", ["pt", "safetensors"])
    def test_the_end_of_a_run(
        self, format: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        output = tmp_path / "out"
        trainer = TinyTrainer(config(callbacks=[ExportCallback(str(output), format)]), batches(2))
        trainer.fit()
        found = torch.load(output) if format == "pt" else read_folder(output)
        assert_equal(found, dict(trainer.model.state_dict()))
        assert capsys.readouterr().out == f"exported 4 tensors, 120 bytes -> {output}\n"
        assert [path.name for path in tmp_path.iterdir()] == ["out"]

    def test_a_taken_place_is_found_before_training(self, tmp_path: Path) -> None:
        trainer = TinyTrainer(config(callbacks=[ExportCallback(str(tmp_path))]), batches(2))
        with pytest.raises(RunError, match=r"is a folder already\. Name another, or remove it\."):
            trainer.fit()
        assert trainer.global_step == 0

    def test_a_run_that_will_go_on_is_not_exported(self, tmp_path: Path) -> None:
        trainer = set_up(TinyTrainer(config()))
        trainer.exit_code = 75
        ExportCallback(str(tmp_path / "out")).post_fit(trainer)
        assert not (tmp_path / "out").exists()

    def test_a_run_that_goes_on_keeps_its_weights(self) -> None:
        trainer = set_up(TinyTrainer(config()))
        trainer.start_step = 1
        LoadPartialCheckpointCallback("none").pre_fit(trainer)

    def test_part_of_a_model(
        self, weights: State, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        encoder = {f"encoder.{key[7:]}": value for key, value in weights.items()}
        write_checkpoint(tmp_path, under("model", encoder | {"head.x": torch.zeros(1)}))
        callback = LoadPartialCheckpointCallback(
            str(tmp_path / "run"), include=("encoder.0.*",), rename={"encoder": "layers"}
        )
        trainer = set_up(TinyTrainer(config()))
        callback.pre_fit(trainer)
        found = trainer.model.state_dict()
        assert torch.equal(found["layers.0.weight"], weights["layers.0.weight"])
        assert not torch.equal(found["layers.1.weight"], weights["layers.1.weight"])
        assert capsys.readouterr().out == f"{tmp_path}/run: 2 of 4 tensors matched\n"

    def test_a_part_that_is_not_there(self, weights: State, tmp_path: Path) -> None:
        write_checkpoint(tmp_path, under("model", weights))
        callback = LoadPartialCheckpointCallback(str(tmp_path / "run"), include=("encoder.*",))
        trainer = set_up(TinyTrainer(config()))
        with pytest.raises(RunError) as error:
            callback.pre_fit(trainer)
        assert str(error.value) == (
            "LoadPartialCheckpointCallback: include='encoder.*' fits none of the 4 tensors of "
            f"{tmp_path}/run, which are model.layers.0.weight, model.layers.0.bias, "
            "model.layers.1.weight and 1 more."
        )
