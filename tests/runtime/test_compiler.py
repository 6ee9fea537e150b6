"""What `DeviceParameters` says to the compiler reaches it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
import torch
import torch._dynamo.config
import torch._functorch.config
import torch._inductor.config

from dream_trainer.configs import DeviceParameters
from dream_trainer.parallel.compiler import configure_compiler
from dream_trainer.world import World

FakeWorld = Callable[[int, int], AbstractContextManager[None]]


@pytest.fixture(autouse=True)
def defaults() -> Iterator[None]:
    with (
        torch._functorch.config.patch(activation_memory_budget=1.0),
        torch._dynamo.config.patch(compiled_autograd=False),
        torch._inductor.config.patch(_micro_pipeline_tp=False),
    ):
        yield


def configured(fake_world: FakeWorld, parameters: DeviceParameters) -> None:
    with fake_world(0, 2):
        world = World(parameters)
        world.connect()
        configure_compiler(world)


def test_nothing_changes_by_default(fake_world: FakeWorld) -> None:
    configured(fake_world, DeviceParameters.FSDP())
    assert torch._functorch.config.activation_memory_budget == 1.0
    assert not torch._dynamo.config.compiled_autograd


def test_budget_and_compiled_autograd(fake_world: FakeWorld) -> None:
    parameters = DeviceParameters.FSDP(activation_memory_budget=0.5, compiled_autograd=True)
    configured(fake_world, parameters)
    assert torch._functorch.config.activation_memory_budget == 0.5
    assert torch._dynamo.config.compiled_autograd


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (None, ""),
        (False, ""),
        (True, "async_tensor_parallel=True has no effect on cpu: it needs CUDA.\n"),
    ],
)
def test_async_tensor_parallel_needs_cuda(
    fake_world: FakeWorld, capsys: pytest.CaptureFixture[str], wanted: bool | None, said: str
) -> None:
    configured(fake_world, DeviceParameters(tensor_parallel=2, async_tensor_parallel=wanted))
    assert capsys.readouterr().out == said
    assert not torch._inductor.config._micro_pipeline_tp
