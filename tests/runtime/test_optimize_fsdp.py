"""FSDP gathers further ahead, in the order in which modules run, and the numbers stay."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from dream_trainer.callbacks import Callback
from dream_trainer.callbacks.optimize_fsdp import OptimizeFSDP
from dream_trainer.configs import DeviceParameters
from tests.runtime.tiny import Batch, TinyTrainer, batches, config


class Backwards(nn.Module):
    """Runs its layers from the last one to the first, one of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 2), nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, x: Tensor) -> Tensor:
        for index in (2, 1, 1, 0):
            x = self.layers[index](x).tanh()
        return x


class Trainer(TinyTrainer):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.losses: list[float] = []

    def configure_models(self) -> None:
        self.model = Backwards()  # type: ignore[assignment]

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        result = super().training_step(batch, batch_idx)
        self.losses.append(result["train/loss"].item())
        return result


class Compiled(Trainer):
    def apply_compile(self) -> None:
        for layer in self.model.layers:
            layer.compile(backend="aot_eager")


ORDER = ["model", "model.layers.2", "model.layers.1", "model.layers.0"]


def run(trainer: type[Trainer], *callbacks: Callback, compiled: bool = False) -> Trainer:
    device = DeviceParameters.FSDP(compile_model=compiled, param_dtype="float32", force_fsdp=True)
    training: dict[str, Any] = {"gradient_accumulation_steps": 2, "max_steps": 4}
    made = trainer(config(device=device, callbacks=callbacks, **training), batches(8))
    made.fit()
    return made


def prefetched(trainer: Trainer, kind: str) -> dict[str, list[str]]:
    """Name of a sharded module -> names of those that it gathers ahead in its forward."""
    modules = trainer.model.named_modules(prefix="model")
    states = {
        name: module._get_fsdp_state()
        for name, module in modules
        if isinstance(module, FSDPModule)
    }
    names = {id(state): name for name, state in states.items()}
    return {
        name: [names[id(ahead)] for ahead in getattr(state, f"_states_to_{kind}_prefetch")]
        for name, state in states.items()
    }


def hooks(trainer: Trainer) -> list[tuple[int, int]]:
    modules = trainer.model.modules()
    return [(len(m._forward_pre_hooks), len(m._forward_hooks)) for m in modules]


def ahead(order: list[str]) -> dict[str, list[str]]:
    return {name: order[index + 1 : index + 3] for index, name in enumerate(order)}


@pytest.mark.parametrize("trainer", [Trainer, Compiled])
def test_in_the_order_in_which_they_run(
    trainer: type[Trainer], capsys: pytest.CaptureFixture[str]
) -> None:
    compiled = trainer is Compiled
    plain = run(trainer, compiled=compiled)
    assert not any(prefetched(plain, "forward").values())
    made = run(trainer, OptimizeFSDP(prefetch=2), compiled=compiled)
    assert prefetched(made, "forward") == ahead(ORDER)
    backward = ["model", "model.layers.0", "model.layers.1", "model.layers.2"]
    assert prefetched(made, "backward") == ahead(backward)
    assert made.losses == plain.losses
    assert hooks(made) == hooks(plain)
    told = capsys.readouterr().out
    assert told == "OptimizeFSDP: 4 sharded modules, each gathers the next 2 ahead\n"


def test_two_ranks(torchrun: Callable[..., Any]) -> None:
    done = torchrun(2, Path(__file__))
    assert done.returncode == 0, done.stderr
    ranks = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(ranks) == 2
    for rank in ranks:
        assert rank["forward"] == ahead(ORDER)
        assert rank["with"] == rank["without"]
        assert len(set(rank["with"])) == 8


def test_nothing_is_sharded(capsys: pytest.CaptureFixture[str]) -> None:
    TinyTrainer(config(callbacks=[OptimizeFSDP()]), batches(1)).fit()
    told = capsys.readouterr().out
    assert told == "OptimizeFSDP: no module of this run is sharded by FSDP: nothing to do\n"


def test_nothing_ahead_is_refused() -> None:
    with pytest.raises(ValueError) as raised:
        OptimizeFSDP(prefetch=0)
    assert str(raised.value) == "prefetch=0 gathers nothing. Use a whole number from 1."


def main() -> None:
    """On each rank: the losses with and without, and what is gathered ahead."""
    import torch.distributed as dist

    without = run(Trainer).losses
    made = run(Trainer, OptimizeFSDP(prefetch=2))
    report = {"without": without, "with": made.losses, "forward": prefetched(made, "forward")}
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()
    del made
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
