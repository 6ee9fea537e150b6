"""The checker and the runtime's own start-up say the same, word for word.

Random parameters, a random subset of hooks, a random number of processes: the project is
written to disk, `dream check --world-size N` reads it, and the runtime sets it up on a
pretended process group of N. Each is the other's truth.
"""

import importlib.util
import itertools
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dream_scaffold.check import Options, check
from dream_trainer import lifecycle
from dream_trainer.callbacks import CallbackCollection
from dream_trainer.configs import ConfigError
from dream_trainer.contract import HOOKS

World = Callable[[int, int], AbstractContextManager[None]]

BODIES = {
    "configure_models": "self.model = Model()",
    "apply_pipeline_parallel": (
        "return {'model': cut_model("
        "self.model, pp_mesh, self.world, layers='layers', first=[], last=[])}"
    ),
    "apply_tensor_parallel": (
        "[parallelize_module(layer, tp_mesh, ColwiseParallel()) for layer in self.model.layers]"
    ),
    "apply_activation_checkpointing": "[checkpoint(layer) for layer in self.model.layers]",
    "apply_compile": "[layer.compile(backend='eager') for layer in self.model.layers]",
    "context_parallel_buffers": "return [(batch, 1)]",
    "apply_fully_shard": "fully_shard(self.model, **config)",
    "apply_replicate": "replicate(self.model, device_mesh=dp_replicate_mesh)",
    "configure_optimizers": "return {self.model: torch.optim.SGD(self.model.parameters(), 0.1)}",
    "configure_dataloaders": "return [torch.ones(2, 8)], None",
    "training_step": "return {}",
}
"""Hook -> a body that works. Those that are optional everywhere are left out."""

IMPORTS = """\
import torch
from dream_trainer import DreamTrainer, DreamTrainerConfig
from dream_trainer.configs import DeviceParameters
from dream_trainer.parallel.pipeline import cut_model
from dream_trainer.utils.cli import cli
from torch.distributed._composable.checkpoint_activation import checkpoint
from torch.distributed._composable.replicate import replicate
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(4))
"""

degree = st.sampled_from([1, 1, 1, 2, 2, 4, "auto", "auto", 3, 0, True, "two"])
switch = st.sampled_from([False, False, True])
FIELDS = {
    "pipeline_parallel": st.sampled_from([1, 1, 1, 1, 2]),
    "dp_replicate": degree,
    "dp_shard": degree,
    "context_parallel": st.sampled_from([1, 1, 1, 1, 2]),
    "tensor_parallel": st.sampled_from([1, 1, 1, 2, "auto", 8]),
    "param_dtype": st.sampled_from(["float32", "bfloat16", "float17"]),
    "checkpoint_activations": switch,
    "async_tensor_parallel": st.sampled_from([None, None, True, False]),
    "force_ddp": switch,
    "force_fsdp": switch,
}
parameters = st.fixed_dictionaries({"compile_model": switch}, optional=FIELDS)
hooks = st.sets(st.sampled_from(sorted(BODIES)), min_size=5).map(
    lambda drawn: drawn | {"configure_models", "configure_optimizers", "configure_dataloaders"}
) | st.sets(st.sampled_from(sorted(BODIES)))
number = itertools.count()


def write(folder: Path, values: dict[str, Any], defined: set[str]) -> Path:
    signatures = {hook.name: ", ".join(("self", *hook.parameters)) for hook in HOOKS}
    methods = [
        f"    def {name}({signatures[name]}):\n        {body}\n"
        for name, body in BODIES.items()
        if name in defined
    ]
    arguments = ", ".join(f"{name}={value!r}" for name, value in values.items())
    file = folder / "train.py"
    file.write_text(
        f"{IMPORTS}\n\nclass MyTrainer(DreamTrainer):\n    item = 'rows'\n\n"
        + "\n".join(methods)
        + "\n\ndef my_config():\n    return DreamTrainerConfig(\n"
        f"        device_parameters=DeviceParameters({arguments}),\n    )\n\n\n"
        "def main(config):\n    MyTrainer(config).fit()\n\n\n"
        'if __name__ == "__main__":\n    cli(main, my_config)\n'
    )
    return file


def runtime_says(file: Path, world_size: int, fake_world: World) -> set[tuple[str, str]]:
    """(code, text) of everything that start-up refuses; nothing where it sets the trainer up."""
    spec = importlib.util.spec_from_file_location(f"hinge_{next(number)}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with fake_world(0, world_size):
        try:
            trainer = module.MyTrainer(module.my_config())
            trainer.callbacks = CallbackCollection()
            lifecycle.set_up(trainer)
        except ConfigError as error:
            return {(error.code, str(error))}
        except lifecycle.HookError as error:
            lines = (line.rpartition(" [") for line in str(error).splitlines())
            return {(code.rstrip("]"), text) for text, _, code in lines}
    return set()


def checker_says(file: Path, world_size: int) -> set[tuple[str, str]]:
    result = check(Options(paths=(str(file),), world_size=world_size))
    return {
        (finding.code, f"{finding.message} {finding.help}")
        for finding in result.findings
        if finding.severity == "error"
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(values=parameters, defined=hooks, world_size=st.sampled_from([1, 2, 4, 8]))
def test_checker_and_start_up_agree(
    values: dict[str, Any], defined: set[str], world_size: int, folder: Path, fake_world: World
) -> None:
    file = write(folder, values, defined)
    refused, found = runtime_says(file, world_size, fake_world), checker_says(file, world_size)
    if any(code.startswith("DT1") and code != "DT115" for code, _ in refused):
        # Start-up ends at the configuration; the checker goes on to the hooks.
        assert refused <= found
    else:
        assert refused == found


@pytest.mark.parametrize("world_size", [1, 2, 8])
@pytest.mark.parametrize(
    "values",
    [
        {"compile_model": False},
        {"compile_model": True, "dp_shard": "auto"},
        {"compile_model": False, "dp_replicate": "auto", "checkpoint_activations": True},
        {"compile_model": False, "dp_replicate": "auto", "force_fsdp": True},
    ],
)
def test_the_sound_cases_are_set_up(
    values: dict[str, Any], world_size: int, folder: Path, fake_world: World
) -> None:
    file = write(folder, values, set(BODIES))
    expected = {"DT102"} if values == {"compile_model": False} and world_size > 1 else set()
    assert {code for code, _ in runtime_says(file, world_size, fake_world)} == expected
    assert {code for code, _ in checker_says(file, world_size)} == expected
