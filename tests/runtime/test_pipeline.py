"""A model cut into stages: which rank holds what, under which names."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
from torch import Tensor, nn

from dream_trainer.configs import DeviceParameters, RunError
from dream_trainer.configs.device import SCHEDULES
from dream_trainer.parallel.pipeline import Parts, cut_model, present
from dream_trainer.world import World as ProcessWorld

World = Callable[[int, int], AbstractContextManager[None]]


class Model(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.embed = nn.Linear(2, 2)
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(layers))
        self.head = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def cut(fake_world: World, rank: int, ranks: int, schedule: str, layers: int = 8) -> Parts:
    parameters = DeviceParameters(
        pipeline_parallel=ranks, pipeline_schedule=schedule, compile_model=False
    )
    with fake_world(rank, ranks):
        world = ProcessWorld(parameters)
        world.connect()
        with torch.device("meta"):
            model = Model(layers)
        return cut_model(
            model, world.mesh["pp"], world, layers="layers", first=["embed"], last=["head"]
        )


def held(parts: Parts) -> list[list[str]]:
    """The modules with weights of each stage, by their names."""
    return [
        sorted({name.rpartition(".")[0] for name, _ in part.named_parameters()})
        for part in parts.model_parts
    ]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("ranks", [2, 4])
def test_every_module_is_held_once_under_its_name(
    fake_world: World, schedule: str, ranks: int
) -> None:
    parts = [cut(fake_world, rank, ranks, schedule) for rank in range(ranks)]
    names = [name for part in parts for stage in held(part) for name in stage]
    assert sorted(names) == ["embed", "head", *(f"layers.{i}" for i in range(8))]
    assert [rank for rank, part in enumerate(parts) if part.has_first_stage] == [0]
    last = [rank for rank, part in enumerate(parts) if part.has_last_stage]
    assert last == [0 if schedule in ("ZBVZeroBubble", "DualPipeV") else ranks - 1]


@pytest.mark.parametrize(
    ("schedule", "rank", "stages"),
    [
        ("1F1B", 0, [["embed", "layers.0", "layers.1", "layers.2", "layers.3"]]),
        ("1F1B", 1, [["head", "layers.4", "layers.5", "layers.6", "layers.7"]]),
        ("Interleaved1F1B", 1, [["layers.2", "layers.3"], ["head", "layers.6", "layers.7"]]),
        (
            "ZBVZeroBubble",
            0,
            [["embed", "layers.0", "layers.1"], ["head", "layers.6", "layers.7"]],
        ),
    ],
)
def test_who_holds_what(
    fake_world: World, schedule: str, rank: int, stages: list[list[str]]
) -> None:
    assert held(cut(fake_world, rank, 2, schedule)) == stages


def test_stages_in_a_row_are_the_whole_model(fake_world: World) -> None:
    x = torch.randn(3, 2)
    torch.manual_seed(0)
    whole = Model(5)
    expected, reached = whole(x), x
    for rank in range(3):
        parts = cut(fake_world, rank, 3, "1F1B", layers=5)
        stage = parts.model_parts[0].to_empty(device="cpu")
        own = {name: whole.state_dict()[name] for name in stage.state_dict()}
        stage.load_state_dict(own)
        reached = stage(reached)
    assert torch.equal(reached, expected)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (
            "1F1B",
            "3 layers cannot fill 4 pipeline stages (1F1B on 4 ranks). Use at least 4 layers, "
            "or lower pipeline_parallel.",
        ),
        (
            "DualPipeV",
            "3 layers cannot fill 8 pipeline stages (DualPipeV on 4 ranks). Use at least 8 "
            "layers, or lower pipeline_parallel.",
        ),
    ],
)
def test_too_few_layers(fake_world: World, schedule: str, message: str) -> None:
    with pytest.raises(RunError) as caught:
        cut(fake_world, 0, 4, schedule, layers=3)
    assert str(caught.value) == message


def test_a_plan_is_limited_to_what_a_stage_holds(fake_world: World) -> None:
    plan = {"embed": 1, "head": 2}
    first, last = (cut(fake_world, rank, 2, "1F1B").model_parts[0] for rank in (0, 1))
    assert present(first, plan) == {"embed": 1}
    assert present(last, plan) == {"head": 2}
    assert present(Model(1), plan) == plan
