"""EMACallback: the average itself, its place in validation, and its way through checkpoints."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils._python_dispatch import TorchDispatchMode

from dream_trainer.callbacks import Callback, EMACallback
from dream_trainer.configs import ConfigError
from tests.conftest import run_torchrun
from tests.runtime import ema_cases, sized
from tests.runtime.tiny import Batch, Model, TinyTrainer, batches, config, single


class Reference(Callback):
    """torch's own average, updated after each optimizer step."""

    def __init__(self, decay: float) -> None:
        self.decay = decay

    def post_setup(self, trainer: Any) -> None:
        self.model = AveragedModel(trainer.model, multi_avg_fn=get_ema_multi_avg_fn(self.decay))

    def post_optimizer_step(self, trainer: Any, optimizer: Any) -> None:
        self.model.update_parameters(trainer.model)

    def tensors(self) -> dict[str, Tensor]:
        return {f"model.{n}": p for n, p in self.model.module.named_parameters()}


def averages(trainer: TinyTrainer) -> dict[str, Tensor]:
    average = trainer.callbacks["EMACallback"]
    assert isinstance(average, EMACallback)
    return average.averages


def raise_unless_close(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, expected[name].detach(), rtol=0, atol=1e-6, msg=name)


def loss_of(model: nn.Module, data: list[Batch]) -> float:
    with torch.no_grad():
        return float(sum(F.mse_loss(model(b["x"]), b["y"]) for b in data) / len(data))


class TestAverage:
    @pytest.mark.parametrize("window", [1, 2])
    def test_it_is_that_of_torch(self, window: int) -> None:
        reference = Reference(0.7)
        callbacks = [EMACallback(decay=0.7), reference]
        settings = config(callbacks=callbacks, gradient_accumulation_steps=window)
        trainer = TinyTrainer(settings, batches(7))
        trainer.fit()
        raise_unless_close(averages(trainer), reference.tensors())
        weights = dict(trainer.model.named_parameters(prefix="model"))
        assert all(not torch.equal(v, weights[k]) for k, v in averages(trainer).items())

    def test_which_steps(self) -> None:
        class Weights(Callback):
            def __init__(self) -> None:
                self.after: list[Tensor] = []

            def post_optimizer_step(self, trainer: Any, optimizer: Any) -> None:
                self.after.append(trainer.model.layers[0].weight.detach().clone())

        weights, average = Weights(), EMACallback(decay=0.25, every_n_steps=2, start_step=3)
        trainer = TinyTrainer(config(callbacks=[average, weights]), batches(7))
        trainer.fit()
        expected = 0.25 * weights.after[3] + 0.75 * weights.after[5]  # After steps 4 and 6.
        assert average.updates == 2
        torch.testing.assert_close(averages(trainer)["model.layers.0.weight"], expected)

    def test_two_optimizers_make_one_step(self) -> None:
        class Two(TinyTrainer):
            def configure_optimizers(self) -> Any:
                first, second = self.model.layers
                self.one = torch.optim.SGD(first.parameters(), lr=0.5)
                self.other = torch.optim.SGD(second.parameters(), lr=0.5)
                return {self.model: self.one}

            def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
                self.backward(F.mse_loss(self.model(batch["x"]), batch["y"]))
                self.step(self.one)
                self.step(self.other)
                return {}

        single_optimizer = TinyTrainer(config(callbacks=[EMACallback(0.5)]), batches(5))
        single_optimizer.fit()
        trainer = Two(config(callbacks=[EMACallback(0.5)]), batches(5))
        trainer.fit()
        raise_unless_close(averages(trainer), averages(single_optimizer))

    def test_frozen_parameters_and_buffers(self) -> None:
        class Partly(TinyTrainer):
            def configure_models(self) -> None:
                super().configure_models()
                self.model.layers[0].requires_grad_(False)
                self.model.register_buffer("seen", torch.zeros(()))

            def init_weights(self) -> None:
                super().init_weights()
                self.model.seen.zero_()

            def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
                self.model.seen += 1
                return super().training_step(batch, batch_idx)

        average = EMACallback(0.5)
        trainer = Partly(config(callbacks=[average]), batches(3))
        trainer.fit()
        assert set(average.averages) == {"model.layers.1.weight", "model.layers.1.bias"}
        state = average.ema_state_dict(trainer)
        assert state["model.seen"] == 3
        assert torch.equal(state["model.layers.0.weight"], trainer.model.layers[0].weight)
        whole = Model()
        whole.register_buffer("seen", torch.zeros(()))
        whole.load_state_dict({k.removeprefix("model."): v for k, v in state.items()})
        assert torch.equal(whole.layers[1].weight, average.averages["model.layers.1.weight"])

    def test_weights_of_16_bits_have_an_average_of_32(self) -> None:
        class Low(TinyTrainer):
            def configure_models(self) -> None:
                super().configure_models()
                self.model.bfloat16()

            def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
                return super().training_step(
                    {k: v.bfloat16() for k, v in batch.items()}, batch_idx
                )

        average, reference = EMACallback(0.999), Reference(0.999)
        device = single(allow_low_precision_params=True, param_dtype="bfloat16")
        trainer = Low(config(device, callbacks=[average, reference]), batches(20))
        trainer.fit()
        name = "model.layers.0.weight"
        assert average.averages[name].dtype == torch.float32
        # In 16 bits an average of 0.999 never moves by less than 1/256 of itself.
        assert not torch.equal(average.averages[name].bfloat16().float(), average.averages[name])
        with average.swapped(trainer):
            assert torch.equal(trainer.model.layers[0].weight, average.averages[name].bfloat16())

    def test_a_step_costs_one_operation(self) -> None:
        class Noted(TorchDispatchMode):
            def __init__(self) -> None:
                super().__init__()
                self.names: list[str] = []

            def __torch_dispatch__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ):
                self.names.append(func.name())
                return func(*args, **(kwargs or {}))

        class Watched(EMACallback):
            def post_train_step(self, *args: Any) -> None:
                with noted:
                    super().post_train_step(*args)

        noted = Noted()
        TinyTrainer(config(callbacks=[Watched()], gradient_accumulation_steps=2), batches(6)).fit()
        assert noted.names == ["aten::_foreach_copy_", *["aten::_foreach_lerp_.Scalar"] * 2]

    @pytest.mark.parametrize("compiled", [False, True])
    def test_mixed_precision_and_compiled(self, compiled: bool) -> None:
        class Compiled(TinyTrainer):
            def apply_compile(self) -> None:
                for layer in self.model.layers:
                    layer.compile(backend="eager")

        average, reference = EMACallback(0.5), Reference(0.5)
        losses = Losses()
        device = single(param_dtype="bfloat16", compile_model=compiled)
        settings = config(device, callbacks=[average, reference, losses])
        trainer = Compiled(settings, batches(4), batches(2, seed=1))
        trainer.fit()
        raise_unless_close(averages(trainer), reference.tensors())
        with torch.autocast("cpu", torch.bfloat16):
            expected = loss_of(reference.model.module, batches(2, seed=1))
        assert losses.val == [pytest.approx(expected, abs=1e-3)]

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            ({"decay": 1.0}, "decay=1.0 is not possible. Use a number from 0 to below 1."),
            (
                {"every_n_steps": 0},
                "every_n_steps=0 is not possible. Use a whole number from 1.",
            ),
            ({"start_step": -1}, "start_step=-1 is not possible. Use a whole number from 0."),
        ],
    )
    def test_refused(self, arguments: dict[str, Any], text: str) -> None:
        with pytest.raises(ConfigError) as caught:
            EMACallback(**arguments)
        assert str(caught.value) == text and caught.value.code == "DT114"


class Losses(Callback):
    """What validations came to."""

    def __init__(self) -> None:
        self.val: list[float] = []

    def post_validation_epoch(self, trainer: Any, result: dict[str, float]) -> None:
        self.val.append(result["val/loss"])


class Interrupted(TinyTrainer):
    """Its last validation raises, or is told to stop."""

    stops = False

    def validation_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        self.within = self.model.layers[0].weight.detach().clone()
        if not self.stops:
            raise ZeroDivisionError
        self.is_stopping = True
        return super().validation_step(batch, batch_idx)


class TestValidation:
    held_out = batches(3, seed=1)

    def validated(self, **arguments: Any) -> tuple[TinyTrainer, list[float]]:
        losses = Losses()
        average = EMACallback(decay=0.9, **arguments)
        settings = config(callbacks=[average, losses], num_sanity_val_steps=3)
        trainer = TinyTrainer(settings, batches(6), self.held_out)
        trainer.fit()
        return trainer, losses.val

    def test_it_is_that_of_the_average(self) -> None:
        trainer, (before, after) = self.validated()
        model = Model()
        state = {k.removeprefix("model."): v for k, v in averages(trainer).items()}
        model.load_state_dict(state)
        assert after == pytest.approx(loss_of(model, self.held_out), abs=1e-6)
        assert abs(after - loss_of(trainer.model, self.held_out)) > 1e-3
        plain, (sanity, _) = self.validated(validate=False)
        assert before == sanity  # Of the weights: there is no average yet.
        for own, without in zip(trainer.model.parameters(), plain.model.parameters(), strict=True):
            assert torch.equal(own, without)

    def test_it_can_be_left_out(self) -> None:
        trainer, (_, after) = self.validated(validate=False)
        assert after == pytest.approx(loss_of(trainer.model, self.held_out), abs=1e-6)

    @pytest.mark.parametrize("stops", [False, True], ids=["raises", "stops"])
    def test_the_weights_come_back(self, stops: bool) -> None:
        class Kept(Callback):
            def pre_validation_epoch(self, trainer: Any) -> None:
                self.weight = trainer.model.layers[0].weight.detach().clone()

        kept, average = Kept(), EMACallback(decay=0.9)
        trainer = Interrupted(config(callbacks=[average, kept]), batches(4), self.held_out)
        trainer.stops = stops
        if stops:
            trainer.fit()
        else:
            with pytest.raises(ZeroDivisionError):
                trainer.fit()
        assert torch.equal(trainer.within, average.averages["model.layers.0.weight"])
        assert not torch.equal(trainer.within, kept.weight)
        assert torch.equal(trainer.model.layers[0].weight, kept.weight)

    def test_no_swap_without_an_average(self) -> None:
        average = EMACallback(start_step=5)
        trainer = TinyTrainer(config(callbacks=[average]), batches(2))
        trainer.fit()
        with pytest.raises(RuntimeError) as caught, average.swapped(trainer):
            pass
        assert str(caught.value) == (
            "There is no average at step 2: it begins after step 5. Swap later, or lower "
            "start_step."
        )


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("ema")
    done = run_torchrun(2, ema_cases.__file__, folder, cwd=folder, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, torch.load(folder / "told.pt")


@pytest.mark.parametrize("mesh", ema_cases.MESHES)
class TestMeshes:
    def test_validation_is_that_of_the_average(self, mesh: str, told: Any) -> None:
        found = told[1][mesh]
        expected, raw = (validated(found[key]) for key in ("average", "weights"))
        assert found["val"][-1] == pytest.approx(expected, abs=1e-5)
        assert found["val without"][-1] == pytest.approx(raw, abs=1e-5)
        assert abs(expected - raw) > 1e-2

    def test_training_goes_on_as_if_there_were_none(self, mesh: str, told: Any) -> None:
        found = told[1][mesh]
        assert found["train"] == found["train without"]
        for name, tensor in found["weights"].items():
            assert torch.equal(tensor, found["weights without"][name]), name

    def test_another_mesh_takes_it_up(self, mesh: str, told: Any) -> None:
        raise_unless_close(told[1][mesh]["resumed"], told[1]["fsdp"]["average"])

    def test_what_a_mesh_does_not_change(self, mesh: str, told: Any) -> None:
        if "dp" in mesh:
            raise_unless_close(told[1][mesh]["average"], told[1]["fsdp"]["average"])


def test_one_rank_takes_it_up(told: Any) -> None:
    average = EMACallback(decay=0.5)
    ema_cases.make({}, [average], told[0], enable=False, resume="run").fit()
    raise_unless_close(average.averages, told[1]["fsdp"]["average"])
    assert average.updates == ema_cases.STEPS


def validated(state: dict[str, Tensor]) -> float:
    """The loss of a plain model with these weights."""
    model = sized.Model(sized.Config())
    model.load_state_dict({k.removeprefix("model."): v for k, v in state.items()})
    batch = ema_cases.held_out()
    with torch.no_grad():
        return float(sized.next_token(model(batch), batch))
