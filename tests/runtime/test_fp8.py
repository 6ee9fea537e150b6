"""Fp8Quantization: which layers, when, and what stays as it was."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dream_trainer.callbacks import Callback, Fp8Quantization
from dream_trainer.callbacks.fp8 import raise_unless_fp8
from dream_trainer.configs import ConfigError, DreamTrainerConfig, RunError
from dream_trainer.utils.modifiers import MODIFIERS
from tests.conftest import run_torchrun
from tests.runtime import sized
from tests.runtime.tiny import TinyTrainer, batches, config, set_up, single

CASES = '''
"""Two steps on each mesh of two ranks; prints the losses of rank 0."""
import json, sys
from dream_trainer.callbacks import Fp8Quantization
from dream_trainer.utils.entrypoint import guarded
from tests.runtime import sized
from tests.runtime.test_fp8 import Losses

@guarded
def main():
    told = {}
    for name in ("fsdp", "tp"):
        losses = Losses()
        device = sized.DEVICES[name]
        chosen = [Fp8Quantization(recipe="rowwise", emulate=True), losses]
        trainer = sized.Trainer(sized.config(device, callbacks=chosen))
        trainer.fit()
        told[name] = losses.train
    if trainer.world.is_rank_zero:
        print(json.dumps(told))

main()
'''


class Losses(Callback):
    def __init__(self) -> None:
        self.train: list[float] = []
        self.val: list[float] = []

    def post_train_step(self, trainer: Any, result: Any, batch: Any, batch_idx: int) -> None:
        self.train.append(float(result["train/loss"]))


def trained(*callbacks: Callback, **fields: Any) -> tuple[sized.Trainer, list[float]]:
    losses = Losses()
    device = single(**fields.pop("device", {}))
    trainer = sized.Trainer(sized.config(device, callbacks=[*callbacks, losses], **fields))
    trainer.fit()
    return trainer, losses.train


class Odd(TinyTrainer):
    """Layers of several sizes, some behind a name of their own."""

    def configure_models(self) -> None:
        self.model = nn.ModuleDict(
            {
                "body": nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)),
                "head": nn.Linear(16, 50),
                "narrow": nn.Linear(8, 16),
            }
        )
        self.critic = nn.Linear(16, 16)


def conversion(fp8: Fp8Quantization) -> Odd:
    trainer = Odd(config(callbacks=[fp8]))
    trainer.config.training_parameters.startup_checks = False
    return set_up(trainer)


class TestConversion:
    @pytest.fixture(autouse=True)
    def needs_torchao(self) -> None:
        pytest.importorskip("torchao")

    @pytest.mark.parametrize("recipe", ["tensorwise", "rowwise"])
    def test_it_trains_almost_as_before(self, recipe: Any) -> None:
        # Three rows of 16 tokens: batches need not be multiples of anything.
        plain, expected = trained(rows=3)
        trainer, losses = trained(Fp8Quantization(recipe, emulate=True), rows=3)
        assert losses == pytest.approx(expected, abs=0.02) and losses != expected
        assert type(trainer.model.layers[0].up).__name__ == "Float8Linear"
        assert trainer.model.layers[0].up.config.pad_inner_dim  # Devices need it, emulation not.
        state, before = trainer.model.state_dict(), plain.model.state_dict()
        assert {k: v.dtype for k, v in state.items()} == {k: v.dtype for k, v in before.items()}

    def test_which_layers(self, capsys: pytest.CaptureFixture[str]) -> None:
        fp8 = Fp8Quantization(exclude=["body.2"], emulate=True)
        trainer = conversion(fp8)
        assert fp8.converted == ["model.body.0", "critic"]
        assert fp8.skipped == {
            "model.body.2": "excluded",
            "model.head": "out_features 50 is no multiple of 16",
            "model.narrow": "in_features 8 is no multiple of 16",
        }
        assert type(trainer.critic).__name__ == "Float8Linear"
        assert type(trainer.model["head"]) is nn.Linear
        assert capsys.readouterr().out == (
            "fp8: 2 linear layers (tensorwise), skipped model.body.2 (excluded), model.head "
            "(out_features 50 is no multiple of 16), model.narrow (in_features 8 is no multiple "
            "of 16)\n"
        )

    def test_each_tensor_parallel_rank_needs_its_16(self, fake_world: Any) -> None:
        fp8 = Fp8Quantization(emulate=True)
        with fake_world(0, 4):
            device = sized.DeviceParameters(tensor_parallel=4, **sized.FLOAT32)
            trainer = sized.Trainer(sized.config(device, callbacks=[fp8], dim=64))
            trainer.config.training_parameters.startup_checks = False
            set_up(trainer)
        assert "model.layers.0.up" in fp8.converted
        odd = Fp8Quantization(emulate=True)
        with fake_world(0, 4):
            trainer = sized.Trainer(sized.config(device, callbacks=[odd], dim=32))
            trainer.config.training_parameters.startup_checks = False
            with pytest.raises(RunError, match="in_features 32 is no multiple of 16 on each of 4"):
                set_up(trainer)

    def test_it_comes_before_compilation_and_sharding(self) -> None:
        class Order(sized.Trainer):
            def apply_compile(self) -> None:
                self.note("compile")

            def apply_fully_shard(self, config: dict[str, Any]) -> None:
                self.note("shard")
                super().apply_fully_shard(config)

            def note(self, event: str) -> None:
                up = self.model.layers[0].up
                seen[event] = (type(up).__name__, up.weight.is_meta)

        seen: dict[str, Any] = {}
        device = single(force_fsdp=True, compile_model=True)
        chosen = [Fp8Quantization(emulate=True)]
        Order(sized.config(device, callbacks=chosen)).fit()
        assert seen == {"compile": ("Float8Linear", True), "shard": ("Float8Linear", True)}

    def test_meshes_agree(self, tmp_path: Path) -> None:
        (tmp_path / "cases.py").write_text(CASES)
        done = run_torchrun(2, tmp_path / "cases.py", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        told = json.loads(done.stdout.splitlines()[-1])
        _, expected = trained(Fp8Quantization("rowwise", emulate=True))
        assert told["tp"] == pytest.approx(expected, abs=2e-3)
        # The first batch is that of one rank; the second step had the gradients of two.
        assert told["fsdp"][0] == pytest.approx(expected[0], abs=1e-5)

    def test_nothing_to_convert(self) -> None:
        with pytest.raises(RunError) as caught:
            TinyTrainer(config(callbacks=[Fp8Quantization(emulate=True)]), batches(1)).fit()
        assert str(caught.value) == (
            "Fp8Quantization found no linear layer to convert: model.layers.0 (in_features 4 is "
            "no multiple of 16), model.layers.1 (in_features 4 is no multiple of 16). Leave it "
            "out (--no-fp8), or change the sizes or exclude."
        )


class TestRefused:
    def test_on_a_cpu(self) -> None:
        with pytest.raises(RunError) as caught:
            trained(Fp8Quantization())
        assert str(caught.value) == (
            "Fp8Quantization needs CUDA capability 8.9 (H100, L40) or ROCm 9.4 (MI300), and this "
            "is a cpu device. Leave it out (--no-fp8), or try its numbers: "
            "Fp8Quantization(emulate=True)."
        )

    @pytest.mark.parametrize(
        ("capability", "hip", "possible"),
        [
            ((8, 0), None, False),
            ((8, 9), None, True),
            ((9, 0), None, True),
            ((12, 0), None, True),
            ((9, 0), "6.2", False),
            ((9, 4), "6.2", True),
        ],
    )
    def test_on_devices(
        self,
        capability: tuple[int, int],
        hip: str | None,
        possible: bool,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "A card")
        monkeypatch.setattr(torch.version, "hip", hip)
        if possible:
            raise_unless_fp8(torch.device("cuda", 0))
            return
        with pytest.raises(
            RunError, match=rf"this is A card \({capability[0]}\.{capability[1]}\)"
        ):
            raise_unless_fp8(torch.device("cuda", 0))

    def test_without_the_package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "torchao.float8", None)
        with pytest.raises(RunError) as caught:
            trained(Fp8Quantization(emulate=True))
        assert str(caught.value) == (
            "Fp8Quantization needs torchao. Install it (pip install torchao), or pass --no-fp8."
        )

    def test_another_recipe(self) -> None:
        with pytest.raises(ConfigError) as caught:
            Fp8Quantization("colwise")  # type: ignore[arg-type]
        assert str(caught.value) == (
            "recipe='colwise' is not possible. Use tensorwise or rowwise or rowwise_with_gw_hp."
        )


class TestModifier:
    class Own(Fp8Quantization):
        pass

    def test_it_is_left_out(self) -> None:
        other = Losses()
        settings = config(callbacks=[Fp8Quantization(), other, self.Own()])
        settings.extra_callbacks = [self.Own(), other]
        MODIFIERS["--no-fp8"].apply(settings, True)
        assert (settings.callbacks, settings.extra_callbacks) == ([other], [other])

    def test_the_default_callbacks_stay(self) -> None:
        settings = DreamTrainerConfig()
        MODIFIERS["--no-fp8"].apply(settings, True)
        assert settings.callbacks is None
