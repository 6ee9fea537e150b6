"""What breaks a graph is named with its file and line, compiled or not."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dream_trainer.callbacks import Callback
from dream_trainer.callbacks.graph_breaks import FindGraphBreaksCallback
from dream_trainer.configs import DeviceParameters
from tests.runtime.tiny import Batch, TinyTrainer, batches, config, single


class Whole(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(4, size)

    def forward(self, x: Tensor, *, scale: float = 1.0) -> Tensor:
        out: Tensor = self.linear(F.dropout(x, 0.5))
        return out * scale


class Prints(Whole):
    def forward(self, x: Tensor, *, scale: float = 1.0) -> Tensor:
        x = super().forward(x, scale=scale)
        print("", end="")
        return x + 1


class PrintsFirst(Whole):
    """Breaks before the compiler has anything to put into a graph."""

    def forward(self, x: Tensor, *, scale: float = 1.0) -> Tensor:
        print("", end="")
        return super().forward(x, scale=scale)


class Reads(Whole):
    def forward(self, x: Tensor, *, scale: float = 1.0) -> Tensor:
        x = super().forward(x, scale=scale)
        return x * 2 if x.sum().item() > 0 else x


def line_of(block: type[nn.Module], text: str) -> str:
    lines, first = inspect.getsourcelines(block.forward)
    (index,) = (index for index, line in enumerate(lines) if text in line)
    return f"{__file__}:{first + index} in forward"


class Stack(nn.Module):
    def __init__(self, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(blocks)
        self.unused = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, scale=0.5).tanh()
        return x


def trainer_of(*blocks: type[Whole], with_unused: bool = False) -> type[TinyTrainer]:
    class Trainer(TinyTrainer):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.losses: list[float] = []

        def configure_models(self) -> None:
            made: list[nn.Module] = [block(4) for block in blocks[:-1]]
            self.model = Stack([*made, blocks[-1](2)])  # type: ignore[assignment]

        def apply_compile(self) -> None:
            for layer in self.model.layers:
                layer.compile(backend="eager")
            if with_unused:
                self.model.get_submodule("unused").compile(backend="eager")

        def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
            result = super().training_step(batch, batch_idx)
            self.losses.append(result["train/loss"].item())
            return result

    return Trainer


def fsdp(compiled: bool) -> DeviceParameters:
    """Sharded, on one rank."""
    return DeviceParameters.FSDP(compile_model=compiled, param_dtype="float32", force_fsdp=True)


@pytest.fixture
def find(tmp_path: Path) -> Callable[..., FindGraphBreaksCallback]:
    def run(
        trainer: type[TinyTrainer], compiled: bool, **parameters: Any
    ) -> FindGraphBreaksCallback:
        callback = FindGraphBreaksCallback(tmp_path / "log" / "breaks.log", skip=1, stop=True)
        device = parameters.pop("device", None) or single(compile_model=compiled)
        quiet = {"startup_checks": False} | parameters
        trainer(config(device=device, callbacks=[callback], **quiet), batches(9)).fit()
        return callback

    return run


Find = Callable[..., FindGraphBreaksCallback]


def places(callback: FindGraphBreaksCallback) -> dict[str, list[str]]:
    return {found.place: found.blocks for found in callback.breaks.values()}


def test_of_compiled_blocks(find: Find, capsys: pytest.CaptureFixture[str]) -> None:
    callback = find(trainer_of(Prints, Whole, Prints, Reads, with_unused=True), compiled=True)
    printing, reading = line_of(Prints, "print("), line_of(Reads, ".item()")
    assert places(callback) == {
        printing: ["model.layers.0", "model.layers.2"],
        reading: ["model.layers.3"],
    }
    title = "graph breaks: 3, different ones: 2, blocks explained: 4 of 5"
    out = capsys.readouterr().out.splitlines()
    assert out == [
        f"{title}; written to {callback.output_path}",
        f"  2x {printing}",
        f"  1x {reading}",
    ]
    log = callback.output_path.read_text()
    assert log.startswith(f"{title}\n\n2x {printing}, of model.layers.0, model.layers.2\n")
    assert '    print("", end="")\nFailed to trace builtin operator\n' in log
    assert "Tensor.item()" in log


@pytest.mark.parametrize("mesh", ["single", "fsdp", "ddp"])
def test_where_nothing_is_compiled(find: Find, mesh: str) -> None:
    """The model as it is written: DDP's hooks are no concern of it."""
    device = {
        "single": single(),
        "fsdp": fsdp(compiled=False),
        "ddp": DeviceParameters.DDP(compile_model=False, param_dtype="float32", force_ddp=True),
    }
    callback = find(trainer_of(Whole, Prints, Reads), compiled=False, device=device[mesh])
    found = places(callback)
    assert found == {line_of(Prints, "print("): ["model"], line_of(Reads, ".item()"): ["model"]}


def test_before_the_first_operation(find: Find) -> None:
    callback = find(trainer_of(PrintsFirst, Whole), compiled=True)
    assert places(callback) == {line_of(PrintsFirst, "print("): ["model.layers.0"]}


def test_of_the_outermost_compiled_module(find: Find) -> None:
    class Nested(trainer_of(PrintsFirst, Whole)):  # type: ignore[misc]
        def apply_compile(self) -> None:
            super().apply_compile()
            self.model.compile(backend="eager")

    callback = find(Nested, compiled=True)
    assert places(callback) == {line_of(PrintsFirst, "print("): ["model"]}


def test_no_breaks(find: Find, capsys: pytest.CaptureFixture[str]) -> None:
    callback = find(trainer_of(Whole, Whole), compiled=True)
    assert callback.breaks == {}
    title = "graph breaks: 0, different ones: 0, blocks explained: 2 of 2"
    assert callback.output_path.read_text() == f"{title}\n"
    assert title in capsys.readouterr().out


@pytest.mark.parametrize("sharded", [False, True])
def test_after_the_steps_that_are_skipped(
    sharded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, with the calls of one step; the code and its numbers stay what they were."""
    steps: list[int] = []
    explain = FindGraphBreaksCallback._explain

    def noted(self: Any, *call: Any) -> None:
        steps.append(trainer.global_step)
        assert not trainer.gradient_sync.is_on
        explain(self, *call)

    monkeypatch.setattr(FindGraphBreaksCallback, "_explain", noted)

    def losses(*callbacks: Callback) -> Any:
        torch._dynamo.reset()
        training: dict[str, Any] = {"startup_checks": False, "gradient_accumulation_steps": 2}
        device = fsdp(compiled=True) if sharded else single(compile_model=True)
        made = trainer_of(Whole, Reads)
        return made(config(device=device, callbacks=callbacks, **training), batches(9))

    plain = losses()
    plain.fit()
    trainer = losses(FindGraphBreaksCallback(tmp_path / "breaks.log", skip=2))
    trainer.fit()
    assert steps == [2, 2]
    assert trainer.gradient_sync.is_on
    assert trainer.losses == plain.losses
    assert "training_step" not in vars(trainer)
    hooks, before = (
        [len(layer._forward_pre_hooks) for layer in made.model.layers] for made in (trainer, plain)
    )
    assert hooks == before


def test_too_short_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    callback = FindGraphBreaksCallback(tmp_path / "breaks.log")
    TinyTrainer(config(callbacks=[callback]), batches(2)).fit()
    assert capsys.readouterr().out == (
        "graph breaks: the run ended after 2 steps, but skip=5. Train on more data, or skip "
        "less.\n"
    )
