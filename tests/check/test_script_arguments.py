"""What follows `--` changes a configuration exactly as the training script would."""

from collections.abc import Callable
from typing import Any

import pytest

from dream_scaffold.check import Result
from dream_scaffold.errors import DreamError
from dream_trainer import DreamTrainerConfig
from dream_trainer.configs import CheckpointParameters, ConfigError, DeviceParameters
from dream_trainer.utils.chosen import leaves, resolved
from dream_trainer.utils.modifiers import MODIFIERS

SCRIPT = """
    def my_config():
        return DreamTrainerConfig(
            device_parameters=DeviceParameters.FSDP(tensor_parallel=2),
            checkpoint_parameters=CheckpointParameters(checkpoint_every_n_steps=5),
        )

    def other():
        return DreamTrainerConfig(device_parameters=DeviceParameters.SINGLE_DEVICE())

    def main(config):
        Complete(config).fit()

    cli(main, {"mine": my_config, "other": other})
"""

VALUES = {int: "3", str: "somewhere", float: "0.5"}

WITHOUT_SETTING = ("--no-fp8",)
"""Changes callbacks, of which this configuration has none."""

PARTS = (
    "device_parameters.",
    "training_parameters.",
    "checkpoint_parameters.",
    "logging_parameters.",
)


def words(flag: str) -> list[str]:
    kind = MODIFIERS[flag].type
    return [flag] if kind is bool else [flag, VALUES[kind]]


def given(arguments: list[str]) -> dict[str, Any]:
    """The options as the script's own parser hands them on."""
    options: dict[str, Any] = {}
    pending = list(arguments)
    while pending:
        flag = pending.pop(0)
        name = flag.removeprefix("--").replace("-", "_")
        if flag == "--set":
            options.setdefault("set", []).append(pending.pop(0))
        elif MODIFIERS[flag].type is bool:
            options[name] = True
        else:
            options[name] = MODIFIERS[flag].type(pending.pop(0))
    return options


def runtime_says(arguments: list[str]) -> dict[str, str]:
    def mine() -> DreamTrainerConfig:
        return DreamTrainerConfig(
            device_parameters=DeviceParameters.FSDP(tensor_parallel=2),
            checkpoint_parameters=CheckpointParameters(checkpoint_every_n_steps=5),
        )

    config, _ = resolved({"mine": mine}, given(arguments))
    return {path: text for path, text in leaves(config).items() if path.startswith(PARTS)}


CASES = [
    *(words(flag) for flag in MODIFIERS),
    ["--no-compile", "--grad-accum-steps", "4", "--ckpt-acts"],
    ["--set", "device_parameters.tensor_parallel=4", "--no-compile"],
    ["--set", "training_parameters.max_steps=7", "--set", "training_parameters.max_steps=8"],
    ["--set", "device_parameters.checkpoint_activations=true"],
    ["--set", "device_parameters.param_dtype=float32"],
    ["--single-device", "--set", "device_parameters.dp_shard=2"],
]


@pytest.mark.parametrize("arguments", CASES, ids=" ".join)
def test_as_at_run_time(project: Callable[..., Result], arguments: list[str]) -> None:
    result = project(SCRIPT, arguments=tuple(arguments))
    config = next(c for c in result.project.trainers[0].configs if c.name == "my_config")
    expected = runtime_says(arguments)
    assert any(path.startswith(PARTS) for path in config.settings)
    for path, text in expected.items():
        if path in config.settings:
            assert repr(config.value(path)).replace("'", '"') == text, path
    if arguments[0] not in WITHOUT_SETTING:
        plain = project(SCRIPT).project.trainers[0].configs
        assert config.settings != next(c for c in plain if c.name == "my_config").settings


@pytest.mark.parametrize(
    "arguments",
    [
        ["--set", "device_parameters.tensor_parallel=0"],
        ["--force-ddp", "--force-fsdp"],
        ["--grad-accum-steps", "0"],
        ["--set", "device_parameters.async_tensor_parallel=True"],
    ],
    ids=" ".join,
)
def test_what_the_runtime_refuses(project: Callable[..., Result], arguments: list[str]) -> None:
    found = project(SCRIPT, arguments=tuple(arguments)).findings
    codes = {f.code for f in found if f.severity == "error" and "my_config" in f.configs}
    try:
        runtime_says(arguments)
    except ConfigError as error:
        assert error.code in codes
    else:
        assert not codes & {"DT101", "DT103", "DT105", "DT108", "DT114"}


def test_the_configuration_is_chosen_there(project: Callable[..., Result]) -> None:
    result = project(SCRIPT, arguments=("--config", "mine", "--no-compile"))
    assert [config.name for config in result.project.trainers[0].configs] == ["my_config"]


@pytest.mark.parametrize(
    ("arguments", "fact", "remedy"),
    [
        (["--no-compil"], "--no-compil is no option of the runtime's.", "Write --no-compile."),
        (["--lr", "3"], "--lr is no option", "Leave out what the project itself adds."),
        (["--set", "a"], "--set a has no value.", "Write --set path.to.field=value."),
        (["--set"], "--set has no value.", "Write --set VALUE."),
        (["--grad-accum-steps", "x"], "is no int.", "Give --grad-accum-steps such a value."),
        (["--set", "device_parameters.tp=2"], "DeviceParameters has no field tp.", "It has: "),
    ],
)
def test_bad_options(
    project: Callable[..., Result], arguments: list[str], fact: str, remedy: str
) -> None:
    with pytest.raises(DreamError) as error:
        project(SCRIPT, arguments=tuple(arguments))
    assert fact in error.value.fact and remedy in error.value.remedy
