"""What the rules about models, sharding and weights say, where, and what their fixes write."""

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from dream_scaffold.check import Result
from dream_scaffold.check.facts import Finding

Check = Callable[..., Result]

NET = """
import torch
from torch import nn
from torch.distributed._composable.replicate import replicate
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel, RowwiseParallel, parallelize_module
)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
        self.head = nn.Linear(2, 2)


class MyTrainer(Complete):
    def configure_models(self):
        self.model = Net()

    def configure_optimizers(self):
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        return {self.model: self.optimizer}
"""

FSDP = "DeviceParameters.FSDP(compile_model=False)"
TP = "DeviceParameters.FSDP(compile_model=False, tensor_parallel=2)"
ALONE = "DeviceParameters.SINGLE_DEVICE(compile_model=False)"


def with_hooks(hooks: str, device: str = FSDP) -> str:
    body = "\n".join(f"    {line}" if line else "" for line in dedent(hooks).strip().split("\n"))
    return f"{NET}\n{body}\n\n\nconfig = DreamTrainerConfig(device_parameters={device})\n"


def found(result: Result, code: str) -> list[Finding]:
    return [finding for finding in result.findings if finding.code == code]


def text_of(finding: Finding) -> str:
    """The source that a finding points at; of one line."""
    place = finding.place
    line = Path(place.path).read_text().split("\n")[place.line - 1]
    return line[place.column - 1 : place.end_column - 1]


def fixed(finding: Finding) -> str:
    """The line of a finding's fix as it is afterwards, written to the file, too."""
    assert finding.fix is not None
    (edit,) = finding.fix.edits
    path = Path(edit.place.path)
    lines = path.read_text().split("\n")
    number = edit.place.line - 1
    assert edit.place.end_line == edit.place.line
    before, after = (
        lines[number][: edit.place.column - 1],
        lines[number][edit.place.end_column - 1 :],
    )
    lines[number] = f"{before}{edit.text}{after}"
    path.write_text("\n".join(lines))
    return lines[number].strip()


FIXES = {
    "DT209": (
        "def apply_fully_shard(self, config):\n    fully_shard(self.model)",
        FSDP,
        "fully_shard(self.model, **config)",
    ),
    "DT209 of another name": (
        "def apply_replicate(self, mesh):\n    replicate(self.model)",
        "DeviceParameters.DDP(compile_model=False)",
        "replicate(self.model, device_mesh=mesh)",
    ),
    "DT211": (
        "def apply_tensor_parallel(self, tp_mesh):\n"
        '    parallelize_module(self.model, tp_mesh, {"haed": ColwiseParallel()})',
        TP,
        'parallelize_module(self.model, tp_mesh, {"head": ColwiseParallel()})',
    ),
    "DT212": (
        'def apply_compile(self):\n    self.model = torch.compile(self.model, mode="default")',
        "DeviceParameters.SINGLE_DEVICE(compile_model=True)",
        'self.model.compile(mode="default")',
    ),
    "DT303": (
        "def apply_fully_shard(self, config):\n    fully_shard(self.model.cuda(), **config)",
        FSDP,
        "fully_shard(self.model, **config)",
    ),
    "DT307": (
        "def init_weights(self):\n    self.model = self.model.to(torch.bfloat16)",
        ALONE,
        "self.model = self.model",
    ),
    "DT218": (
        "def training_step(self, batch, batch_idx):\n"
        "    from torch.utils.checkpoint import checkpoint\n"
        "    loss = checkpoint(self.model, batch, use_reentrant=True)\n"
        '    return {"loss": loss}',
        ALONE,
        "loss = checkpoint(self.model, batch, use_reentrant=False)",
    ),
}


@pytest.mark.parametrize("name", FIXES)
def test_a_fix_writes_what_is_meant(project: Check, name: str) -> None:
    hooks, device, expected = FIXES[name]
    code = name.partition(" ")[0]
    (finding,) = found(project(with_hooks(hooks, device)), code)
    assert fixed(finding) == expected
    again = Path("train.py").read_text()
    assert found(project(again, prelude=False), code) == []


def test_a_fix_is_not_offered_where_the_name_is_not_in_scope(project: Check) -> None:
    hooks = """
        def apply_fully_shard(self, config):
            self.shard(self.model)

        def shard(self, module):
            fully_shard(module)
    """
    (finding,) = found(project(with_hooks(hooks)), "DT209")
    assert finding.fix is None
    assert [note.place.line for note in finding.notes] == [finding.place.line - 3]


def test_an_unknown_key_is_pointed_at(project: Check) -> None:
    hooks = """
        def apply_tensor_parallel(self, tp_mesh):
            plan = {"layers.*": ColwiseParallel()}
            plan["heads"] = RowwiseParallel()
            parallelize_module(self.model, tp_mesh, plan)
    """
    (finding,) = found(project(with_hooks(hooks, TP)), "DT211")
    assert text_of(finding) == '"heads"'
    assert finding.help == 'Did you mean "head"?'


def test_replication_over_all_ranks_is_an_error_beside_another_axis(project: Check) -> None:
    hook = "def apply_replicate(self, dp_replicate_mesh):\n    replicate(self.model)"
    alone = project(with_hooks(hook, "DeviceParameters.DDP(compile_model=False)"))
    beside = project(
        with_hooks(hook, "DeviceParameters.DDP(compile_model=False, pipeline_parallel=2)")
    )
    severities = [found(result, "DT209")[0].severity for result in (alone, beside)]
    assert severities == ["warning", "error"]


@pytest.mark.parametrize(
    ("device", "severities"),
    [(FSDP, ["error"]), (TP, ["error"]), (ALONE, [])],
    ids=["fsdp", "fsdp and tp", "one device"],
)
def test_whole_weights_are_refused_where_weights_are_sharded(
    project: Check, device: str, severities: list[str]
) -> None:
    hook = 'def init_weights(self):\n    self.model.load_state_dict(torch.load("base.pt"))'
    result = project(with_hooks(hook, device))
    assert [finding.severity for finding in found(result, "DT310")] == severities


def test_whole_weights_under_a_condition_are_no_error(project: Check) -> None:
    hook = """
        def init_weights(self):
            if self.world.world_size == 1:
                self.model.load_state_dict(torch.load("base.pt"))
    """
    result = project(with_hooks(hook), verbose=True)
    assert [finding.severity for finding in found(result, "DT310")] == ["info"]


def test_weights_that_are_filled_again_later_are_only_warned_of(project: Check) -> None:
    hooks = """
        def configure_models(self):
            self.model = Net()
            self.fill()

        def init_weights(self):
            self.fill()

        def fill(self):
            nn.init.normal_(self.model.head.weight)
    """
    (finding,) = found(project(with_hooks(hooks)), "DT301")
    assert finding.severity == "warning"


@pytest.mark.parametrize(
    ("blocks", "severity"),
    [("self.model.layers", "error"), ("self.model.get_decoder().layers", "warning")],
)
def test_a_bare_root_is_reported_as_surely_as_it_is_known(
    project: Check, blocks: str, severity: str
) -> None:
    hook = f"""
        def apply_fully_shard(self, config):
            for layer in {blocks}:
                fully_shard(layer, **config)
    """
    (finding,) = found(project(with_hooks(hook)), "DT208")
    assert finding.severity == severity
    assert text_of(finding) == "apply_fully_shard"


@pytest.mark.parametrize(
    "blocks",
    ["blocks_of(self.model)", "self.model.modules()", "chain(self.model.layers, [self.model])"],
)
def test_what_may_be_the_root_itself_is_left_alone(project: Check, blocks: str) -> None:
    hook = f"""
        def apply_fully_shard(self, config):
            from itertools import chain
            from somewhere import blocks_of
            for layer in {blocks}:
                fully_shard(layer, **config)
    """
    assert found(project(with_hooks(hook), verbose=True), "DT208") == []


def test_a_norm_between_split_layers_does_not_see_a_split_sequence(project: Check) -> None:
    text = """
        import torch
        from torch import nn
        from torch.distributed.tensor import Shard
        from torch.distributed.tensor.parallel import (
            ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
        )

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.before, self.between = nn.RMSNorm(8), nn.RMSNorm(8)
                self.up, self.down = nn.Linear(8, 8), nn.Linear(8, 8)

            def forward(self, x):
                return x + self.down(self.between(self.up(self.before(x))))

        class MyTrainer(Complete):
            def configure_models(self):
                self.model = Block()

            def apply_tensor_parallel(self, tp_mesh):
                parallelize_module(self.model, tp_mesh, {
                    BEFORE
                    "up": ColwiseParallel(input_layouts=Shard(1)),
                    "down": RowwiseParallel(output_layouts=Shard(1)),
                })

        config = DreamTrainerConfig(
            device_parameters=DeviceParameters.FSDP(compile_model=False, tensor_parallel=2)
        )
    """
    whole = project(text.replace("BEFORE", '"before": SequenceParallel(),'))
    bare = project(text.replace("BEFORE", ""))
    assert found(whole, "DT216") == []
    assert [f.message.split("`")[1] for f in found(bare, "DT216")] == ["self.model.before"]


def test_a_model_made_twice_is_one_model(project: Check) -> None:
    text = """
        import torch
        from torch import nn

        class MyTrainer(Complete):
            def configure_models(self):
                self.model = nn.Linear(2, 2)
                self.model = self.model.train()

            def configure_optimizers(self):
                return {self.model: torch.optim.SGD(self.model.parameters(), lr=0.1)}
    """
    (trainer,) = project(text).project.trainers
    models = trainer.behaviour.models
    assert [(model.name, model.certain, model.trained) for model in models.values()] == [
        ("model", True, True)
    ]
