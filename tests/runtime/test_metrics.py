"""Means: weights, exactness, what is refused. Real ranks: test_data.py."""

from typing import Any

import pytest
import torch

from dream_trainer.configs import RunError
from dream_trainer.metrics import Mean
from dream_trainer.world import World
from tests.runtime.tiny import TinyTrainer, config, set_up


@pytest.fixture
def world() -> World:
    return set_up(TinyTrainer(config())).world


def test_nothing(world: World) -> None:
    mean = Mean(world)
    assert mean.reduce() == {}
    mean.add({})
    mean.add({"a": None})
    assert mean.reduce() == {}


@pytest.mark.parametrize(
    "value", [2, 2.0, torch.tensor(2.0), torch.tensor(2), torch.tensor(2.0, dtype=torch.bfloat16)]
)
def test_kinds_of_numbers(value: Any, world: World) -> None:
    mean = Mean(world)
    mean.add({"a": value})
    reduced = mean.reduce()
    assert reduced == {"a": 2.0} and type(reduced["a"]) is float


def test_booleans_are_shares(world: World) -> None:
    mean = Mean(world)
    for value in (True, torch.tensor(False), torch.tensor(True), True):
        mean.add({"a": value})
    assert mean.reduce() == {"a": 0.75}


def test_weights(world: World) -> None:
    mean = Mean(world)
    mean.add({"a": 1.0, "b": 5.0}, weight=3)
    mean.add({"a": 9.0}, weight=1)
    assert mean.reduce() == {"a": 3.0, "b": 5.0}


def test_names_keep_the_order_of_the_user(world: World) -> None:
    mean = Mean(world)
    mean.add({"z": 1.0, "a": 2.0})
    mean.add({"m": 3.0})
    assert list(mean.reduce()) == ["z", "a", "m"]


def test_a_python_float_keeps_its_digits(world: World) -> None:
    mean = Mean(world)
    mean.add({"lr": 1e-4})
    assert mean.reduce() == {"lr": 1e-4}


def test_many_values_are_exact(world: World) -> None:
    values = torch.rand(10_000, generator=torch.Generator().manual_seed(0))
    mean = Mean(world)
    for value in values:
        mean.add({"a": value})
    assert mean.reduce()["a"] == pytest.approx(values.double().mean().item(), rel=1e-12)


def test_no_graph_is_kept(world: World) -> None:
    weight = torch.ones((), requires_grad=True)
    mean = Mean(world)
    mean.add({"a": weight * 2})
    assert not mean.sums["a"].requires_grad
    assert mean.reduce() == {"a": 2.0}


def test_later_changes_of_a_value_do_not_count(world: World) -> None:
    value = torch.tensor(1.0, dtype=torch.float64)
    mean = Mean(world)
    mean.add({"a": value})
    value.fill_(7.0)
    assert mean.reduce() == {"a": 1.0}


def test_reduce_leaves_the_sums(world: World) -> None:
    mean = Mean(world)
    mean.add({"a": 1.0})
    assert mean.reduce() == mean.reduce() == {"a": 1.0}


@pytest.mark.parametrize("shape", [(1,), (2, 3), (0,)])
def test_one_number_each(shape: tuple[int, ...], world: World) -> None:
    mean = Mean(world)
    mean.add({"fine": torch.zeros(())})
    with pytest.raises(RunError) as caught:
        mean.add({"a": torch.zeros(shape)})
    assert str(caught.value) == (
        f"'a' has shape {shape}, but a logged value is one number. Return its mean."
    )


@pytest.mark.parametrize("value", ["text", object(), {"nested": 1.0}])
def test_not_a_number(value: Any, world: World) -> None:
    with pytest.raises(RunError, match="'a'"):
        Mean(world).add({"a": value})
