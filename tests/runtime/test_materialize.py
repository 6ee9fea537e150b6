"""Shapes -> garbage -> values: what is poisoned, what stays tied, what is found unfilled."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from dream_trainer.configs import DeviceParameters, RunError
from dream_trainer.materialize import FillCheck, materialize, named_tensors
from dream_trainer.seeding import fingerprint
from tests.runtime.tiny import FLOAT32, TinyTrainer, config, set_up

CPU = torch.device("cpu")


class Tied(nn.Module):
    """An embedding and a head that share one weight; two blocks that share a table."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(8, 4)
        self.blocks = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.head = nn.Linear(4, 8, bias=False)
        self.head.weight = self.embed.weight
        table = torch.arange(6.0)
        for block in self.blocks:
            block.register_buffer("table", table, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class TiedTrainer(TinyTrainer):
    def configure_models(self) -> None:
        self.model: Any = Tied()

    def apply_fully_shard(self, config: dict[str, Any]) -> None:
        for block in self.model.blocks:
            fully_shard(block, **config)
        fully_shard(self.model, **config)

    def init_weights(self) -> None:
        super().init_weights()
        self.model.blocks[0].table.copy_(torch.arange(6.0))


def on_meta(build: Callable[[], nn.Module]) -> list[tuple[str, nn.Module]]:
    with torch.device("meta"):
        return [("model", build())]


def holding(**tensors: Tensor) -> nn.Module:
    """A module with these buffers, non-persistent."""
    module = nn.Module()
    for name, tensor in tensors.items():
        module.register_buffer(name, tensor, persistent=False)
    return module


def unfilled(models: list[tuple[str, nn.Module]], fill: Callable[[Any], None]) -> str:
    """What the check says after `fill`, or nothing."""
    materialize(models, CPU)
    check = FillCheck(models)
    with torch.no_grad():
        fill(models[0][1])
    try:
        check.raise_if_unfilled()
    except RunError as error:
        return str(error)
    return ""


def message(*names: str) -> str:
    return (
        f"init_weights left {len(names)} tensors uninitialised: {', '.join(names)}. Fill every "
        "parameter and every buffer there, those that no checkpoint holds (persistent=False) "
        "included."
    )


class TestPoison:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.half])
    def test_floats_are_nan(self, dtype: torch.dtype) -> None:
        models = on_meta(lambda: nn.Linear(3, 2, dtype=dtype))
        materialize(models, CPU)
        for _, tensor in named_tensors(models):
            assert tensor.device == CPU and tensor.dtype == dtype and tensor.isnan().all()

    @pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64])
    def test_integers_are_their_minimum(self, dtype: torch.dtype) -> None:
        models = on_meta(lambda: holding(table=torch.zeros(3, dtype=dtype)))
        materialize(models, CPU)
        assert (models[0][1].table == torch.iinfo(dtype).min).all()

    def test_real_tensors_keep_their_values(self) -> None:
        module = nn.Linear(2, 2)
        before = module.weight.detach().clone()
        materialize([("model", module)], CPU)
        assert torch.equal(module.weight, before)

    def test_requires_grad_strides_and_the_global_setting_are_kept(self) -> None:
        def build() -> nn.Module:
            module = nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)
            return module.requires_grad_(False)

        before = torch.__future__.get_swap_module_params_on_conversion()
        models = on_meta(build)
        materialize(models, CPU)
        weight = models[0][1].weight
        assert not weight.requires_grad
        assert weight.is_contiguous(memory_format=torch.channels_last)
        assert torch.__future__.get_swap_module_params_on_conversion() == before


class TestTies:
    def test_parameters_and_buffers_of_one_module(self) -> None:
        models = on_meta(Tied)
        materialize(models, CPU)
        model: Any = models[0][1]
        assert model.head.weight is model.embed.weight
        assert model.blocks[0].table is model.blocks[1].table
        names = [name for name, _ in named_tensors(models)]
        assert names == [
            "model.embed.weight",
            "model.blocks.0.weight",
            "model.blocks.0.bias",
            "model.blocks.1.weight",
            "model.blocks.1.bias",
            "model.blocks.0.table",
        ]

    def test_over_two_models(self) -> None:
        with torch.device("meta"):
            first, second = nn.Linear(2, 2), nn.Linear(2, 2)
            second.weight = first.weight
        materialize([("first", first), ("second", second)], CPU)
        assert second.weight is first.weight
        assert first.bias is not second.bias

    def test_untied_ones_stay_apart(self) -> None:
        models = on_meta(lambda: nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
        materialize(models, CPU)
        first, second = models[0][1].children()
        assert first.weight.data_ptr() != second.weight.data_ptr()

    @pytest.mark.parametrize("preset", ["SINGLE_DEVICE", "DDP", "FSDP", "HSDP"])
    def test_under(self, preset: str, fake_world: Any) -> None:
        degrees = {"dp_shard": 2} if preset == "HSDP" else {}
        parameters = getattr(DeviceParameters, preset)(**degrees, **FLOAT32)
        with fake_world(0, 1 if preset == "SINGLE_DEVICE" else 4):
            trainer = set_up(TiedTrainer(config(parameters)))
            model = trainer.model
            assert model.head.weight is model.embed.weight
            assert model.blocks[0].table is model.blocks[1].table
            assert model.blocks[1].table.tolist() == [0, 1, 2, 3, 4, 5]
            names = [name for name, _ in model.named_parameters()]
            assert names.count("embed.weight") == 1 and "head.weight" not in names
            assert len(names) == 5
            assert isinstance(model.embed.weight, DTensor) == (preset in ("FSDP", "HSDP"))
            held = trainer.optimizer.param_groups[0]["params"]
            assert len({id(p) for p in held}) == 5


class TestUnfilled:
    @pytest.mark.parametrize(
        "dtype",
        [
            torch.float32,
            torch.float64,
            torch.bfloat16,
            torch.float16,
            torch.complex64,
            torch.int64,
            torch.int32,
            torch.int16,
            torch.int8,
            torch.uint8,
            torch.bool,
            torch.uint16,
            torch.uint32,
        ],
    )
    @pytest.mark.parametrize("value", [0, 1])
    def test_every_dtype_by_name(self, dtype: torch.dtype, value: int) -> None:
        def build() -> nn.Module:
            first = torch.zeros(3, dtype=dtype)
            return nn.Sequential(holding(kept=first), holding(rope=torch.zeros(3, dtype=dtype)))

        def fill_first(model: Any) -> None:
            model[0].kept.fill_(value)

        def fill_both(model: Any) -> None:
            fill_first(model)
            model[1].rope.fill_(value)

        assert unfilled(on_meta(build), fill_both) == ""
        assert unfilled(on_meta(build), fill_first) == message("model.1.rope")

    def test_parameters(self) -> None:
        def build() -> nn.Module:
            return nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))

        def reset_all(model: Any) -> None:
            for child in model:
                child.reset_parameters()

        assert unfilled(on_meta(build), reset_all) == ""
        assert unfilled(on_meta(build), lambda model: model[1].reset_parameters()) == message(
            "model.0.weight", "model.0.bias"
        )
        assert unfilled(on_meta(build), lambda model: model[0].reset_parameters()) == message(
            "model.1.weight",
            "model.1.bias",
            "model.1.running_mean",
            "model.1.running_var",
            "model.1.num_batches_tracked",
        )

    def test_long_lists_are_cut(self) -> None:
        text = unfilled(
            on_meta(lambda: nn.Sequential(*(nn.Linear(1, 1) for _ in range(5)))), lambda _: None
        )
        assert text.startswith("init_weights left 10 tensors uninitialised: model.0.weight, ")
        assert "model.3.bias and 2 more. Fill" in text

    @pytest.mark.parametrize(
        "fill",
        [
            lambda m: m.mask.fill_(True),
            lambda m: m.mask.zero_(),
            lambda m: m.mask.copy_(torch.ones(4, 4).tril() > 0),
            lambda m: m.mask.__setitem__((slice(None), 0), True),
            lambda m: setattr(m, "mask", torch.ones(4, 4, dtype=torch.bool)),
            lambda m: m.mask.bernoulli_(0.5),
            lambda m: m.mask.data.fill_(True),
        ],
        ids=["fill", "zero", "copy", "slice", "replaced", "random", "data"],
    )
    def test_a_refilled_mask_is_fine(self, fill: Callable[[Any], None]) -> None:
        models = on_meta(lambda: holding(mask=torch.ones(4, 4, dtype=torch.bool)))
        assert unfilled(models, fill) == ""

    def test_a_mask_left_alone_is_not(self) -> None:
        models = on_meta(lambda: holding(mask=torch.ones(4, 4, dtype=torch.bool)))
        assert unfilled(models, lambda m: m.mask.sum()) == message("model.mask")

    def test_written_slice_by_slice(self) -> None:
        def halves(model: Any, upto: int) -> None:
            for start in range(0, upto, 2):
                model.weight[start : start + 2].fill_(1.0)
            nn.init.zeros_(model.bias)

        models = on_meta(lambda: nn.Linear(3, 6))
        assert unfilled(models, lambda model: halves(model, 6)) == ""
        models = on_meta(lambda: nn.Linear(3, 6))
        assert unfilled(models, lambda model: halves(model, 4)) == message("model.weight")

    def test_infinity_and_extremes_are_values(self) -> None:
        models = on_meta(
            lambda: holding(bias=torch.zeros(3), ids=torch.zeros(2, dtype=torch.int64))
        )

        def fill(model: Any) -> None:
            model.bias.fill_(-torch.inf)
            model.ids.fill_(torch.iinfo(torch.int64).max)

        assert unfilled(models, fill) == ""

    def test_a_tensor_without_elements_needs_no_filling(self) -> None:
        models = on_meta(
            lambda: holding(none=torch.zeros(0), no_mask=torch.zeros(0, dtype=torch.bool))
        )
        assert unfilled(models, lambda _: None) == ""

    def test_a_meta_tensor_put_back_is_found(self) -> None:
        models = on_meta(lambda: holding(table=torch.zeros(2)))
        assert unfilled(
            models, lambda m: setattr(m, "table", torch.zeros(2, device="meta"))
        ) == message("model.table")

    def test_in_a_run_parameters_and_buffers_alike(self, fake_world: Any) -> None:
        class Forgets(TiedTrainer):
            def init_weights(self) -> None:
                for block in self.model.blocks:
                    block.reset_parameters()

        for size, parameters in {
            1: DeviceParameters.SINGLE_DEVICE(**FLOAT32),
            2: DeviceParameters.FSDP(**FLOAT32),
        }.items():
            with fake_world(0, size), pytest.raises(RunError) as caught:
                set_up(Forgets(config(parameters)))
            assert str(caught.value) == message("model.embed.weight", "model.blocks.0.table")


class TestFingerprint:
    @pytest.mark.parametrize(
        "dtype",
        [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.complex64],
    )
    def test_tells_values_apart(self, dtype: torch.dtype) -> None:
        zeros, ones = torch.zeros(3, 2, dtype=dtype), torch.ones(3, 2, dtype=dtype)
        assert fingerprint(zeros) == fingerprint(torch.zeros(3, 2, dtype=dtype))
        assert fingerprint(zeros) != fingerprint(ones)
        assert fingerprint(ones.t()) == fingerprint(torch.ones(2, 3, dtype=dtype))
        assert fingerprint(zeros[0, 0]).shape == ()

    def test_tells_an_order_apart(self) -> None:
        ordered = torch.arange(1.0, 7.0)
        assert fingerprint(ordered) != fingerprint(ordered.flip(0))
