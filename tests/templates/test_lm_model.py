"""The lm recipe's model and its configuration."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dream_trainer.configs import DeviceParameters

SMALL = {"dim": 32, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "hidden_dim": 48}


def build(lm: SimpleNamespace, **sizes: Any) -> Any:
    """A model as the runtime makes one: on meta, then real memory full of NaN, then weights."""
    config = replace(lm.config.single_config(), **(SMALL | {"seq_len": 16} | sizes))
    with torch.device("meta"):
        model = lm.model.Model(config)
    model.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            tensor.fill_(torch.nan)
        torch.manual_seed(0)
        model.init_weights()
    return model


def test_init_weights_fills_everything(lm: SimpleNamespace) -> None:
    model = build(lm)
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    assert "layers.0.attention.rotary.cos" in tensors
    assert all(torch.isfinite(tensor).all() for tensor in tensors.values())
    out, query = model.layers[0].attention.out.weight, model.layers[0].attention.query.weight
    assert query.std().item() == pytest.approx(0.02, rel=0.1)
    assert out.std().item() == pytest.approx(0.02 / 2, rel=0.1)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_logits_have_one_row_a_token(lm: SimpleNamespace, kv_heads: int) -> None:
    model = build(lm, num_kv_heads=kv_heads)
    assert model(torch.randint(256, (3, 16))).shape == (3, 16, 256)
    assert model(torch.randint(256, (3, 5))).shape == (3, 5, 256)


def test_a_token_does_not_see_those_after_it(lm: SimpleNamespace) -> None:
    model = build(lm)
    tokens = torch.randint(256, (1, 16))
    changed = tokens.clone()
    changed[0, 9:] += 1
    before, after = model(tokens), model(changed % 256)
    torch.testing.assert_close(before[:, :9], after[:, :9])
    assert not torch.allclose(before[:, 9:], after[:, 9:])


def test_positions_enter_as_distances_alone(lm: SimpleNamespace) -> None:
    rotary = build(lm).layers[0].attention.rotary
    query, key = torch.randn(8), torch.randn(8)
    turned_query, turned_key = (
        rotary(vector.expand(1, 1, 16, 8))[0, 0] for vector in (query, key)
    )
    scores = turned_query @ turned_key.T
    for distance in range(-3, 4):
        diagonal = scores.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))
    torch.testing.assert_close(turned_query.norm(dim=-1), query.norm().expand(16))


def test_bfloat16_keeps_its_dtype_through_the_rotation(lm: SimpleNamespace) -> None:
    rotary = build(lm).layers[0].attention.rotary
    assert rotary(torch.randn(1, 2, 16, 8, dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert rotary.cos.dtype == torch.float32


REFUSED = {
    "num_layers=0 must be at least 1.": {"num_layers": 0},
    "dim=36 must be a multiple of 2 * num_heads=8: "
    "rotary positions turn the features of a head in pairs.": {"dim": 36},
    "num_heads=4 must be a multiple of num_kv_heads=3: every key head serves as many queries.": {
        "num_kv_heads": 3
    },
    "vocab_size=100 must be at least 256, one per byte.": {"vocab_size": 100},
    "validation_share=1.0 must lie between 0 and 1.": {"validation_share": 1.0},
}


MISFITS: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "num_kv_heads=2 must be a multiple of tensor_parallel=4: each rank takes an equal share.": (
        {"tensor_parallel": 4},
        {},
    ),
    "hidden_dim=47 must be a multiple of tensor_parallel=2: each rank takes an equal share.": (
        {"tensor_parallel": 2},
        {"hidden_dim": 47},
    ),
    "seq_len=15 must be a multiple of context_parallel * tensor_parallel=2: "
    "each rank takes an equal share.": ({"tensor_parallel": 2}, {"seq_len": 15}),
    "seq_len=128 must be a multiple of 2 * context_parallel=12: each rank takes two chunks.": (
        {"context_parallel": 6},
        {},
    ),
    "num_layers=4 must be at least 8: 8 ranks of the pipeline hold 8 stages under 1F1B.": (
        {"pipeline_parallel": 8},
        {},
    ),
    "num_layers=5 must be at least 6: "
    "3 ranks of the pipeline hold 6 stages under ZBVZeroBubble.": (
        {"pipeline_parallel": 3, "pipeline_schedule": "ZBVZeroBubble"},
        {"num_layers": 5},
    ),
}
"""Message -> the degrees, and the sizes of the model that they do not fit."""


@pytest.mark.parametrize("message", MISFITS)
def test_degrees_that_do_not_fit_are_refused(lm: SimpleNamespace, message: str) -> None:
    degrees, sizes = MISFITS[message]
    config = replace(lm.config.single_config(), **sizes)
    with pytest.raises(ValueError) as caught:
        replace(config, device_parameters=DeviceParameters(**degrees))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "degrees",
    [
        {"tensor_parallel": 2, "context_parallel": 4, "pipeline_parallel": 2},
        {"pipeline_parallel": 2, "pipeline_schedule": "ZBVZeroBubble"},
        {"tensor_parallel": "auto"},
        {"pipeline_parallel": "auto"},
    ],
)
def test_degrees_that_fit_or_are_not_known_yet_pass(
    lm: SimpleNamespace, degrees: dict[str, Any]
) -> None:
    replace(lm.config.single_config(), device_parameters=DeviceParameters(**degrees))


@pytest.mark.parametrize("message", REFUSED)
def test_sizes_that_do_not_fit_are_refused(lm: SimpleNamespace, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        replace(lm.config.single_config(), **REFUSED[message])
    assert str(caught.value) == message


def test_a_run_without_end_has_no_learning_rate(lm: SimpleNamespace) -> None:
    config = lm.config.single_config()
    assert config.max_steps == 200
    config.training_parameters.max_steps = None
    with pytest.raises(ValueError) as caught:
        _ = config.max_steps
    assert str(caught.value) == (
        "Set training_parameters.max_steps: the learning rate needs an end."
    )
