"""The checker against the hinge: the same parameters, the same verdict."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_projects import codes, hooks

from dream_scaffold.check import Result
from dream_scaffold.check.hinge import configs, contract

Check = Callable[..., Result]

DEGREE = st.sampled_from([1, 2, 3, 8, "auto", 0, True, "all"])
PARAMETERS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(configs.AXES.values(), DEGREE),
        **{
            name: st.booleans()
            for name in (
                "compile_model",
                "checkpoint_activations",
                "cpu_offload",
                "loss_parallel",
                "force_ddp",
                "force_fsdp",
            )
        },
        "async_tensor_parallel": st.sampled_from([None, True, False]),
        "param_dtype": st.sampled_from(["float32", "bfloat16", "float16"]),
        "activation_memory_budget": st.sampled_from([0, 0.5, 1.5]),
        "pipeline_microbatches": st.sampled_from([None, 4, 0]),
    },
)
HOOKS = st.sets(st.sampled_from([hook.name for hook in contract.HOOKS]))
SIZES = st.sampled_from([None, (8, None), (16, 8), (6, 2)])
PRESETS = st.sampled_from(["", ".FSDP", ".DDP", ".SINGLE_DEVICE"])


def expected(
    preset: str, values: dict[str, Any], defined: set[str], size: tuple[int, int | None] | None
) -> list[tuple[str, str, str]]:
    """What a run would refuse, asked of the hinge itself."""
    build: Any = configs.DeviceParameters
    if preset:
        build = getattr(build, preset[1:])
    single = configs.DeviceParameters.SINGLE_DEVICE(compile_model=False)
    always = contract.problems(single, single.degrees, defined, "T")
    found = [(p.code, p.fact, p.remedy) for p in always if p.code == "DT206"]
    try:
        parameters = build(**values)
    except configs.ConfigError as error:
        return [*found, (error.code, error.fact, error.remedy)]
    degrees: Any = parameters.degrees
    if size is not None:
        try:
            degrees = configs.resolve_axes(parameters, *size).sizes
        except configs.ConfigError as error:
            found.append((error.code, error.fact, error.remedy))
    others = contract.problems(parameters, degrees, defined, "T")
    return found + [(p.code, p.fact, p.remedy) for p in others if p.code != "DT206"]


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(preset=PRESETS, values=PARAMETERS, defined=HOOKS, size=SIZES)
def test_the_checker_says_what_the_hinge_says(
    project: Check,
    preset: str,
    values: dict[str, Any],
    defined: set[str],
    size: tuple[int, int | None] | None,
) -> None:
    if preset == ".FSDP":
        values.pop("dp_replicate", None)
    methods = "".join(f"    {name} = provided\n" for name in sorted(defined)) or "    pass\n"
    written = ", ".join(f"{name}={value!r}" for name, value in values.items())
    text = (
        "from dream_trainer import DreamTrainer, DreamTrainerConfig\n"
        "from dream_trainer.configs import DeviceParameters\n"
        "from elsewhere import provided\n\n"
        f"class T(DreamTrainer):\n{methods}\n"
        f"config = DreamTrainerConfig(device_parameters=DeviceParameters{preset}({written}))\n"
    )
    world, local = size or (None, None)
    given_size = {} if world is None else {"world_size": world}
    if local is not None and world is not None:
        given_size = {"nnodes": world // local, "nproc_per_node": local}
    result = project(text, prelude=False, **given_size)
    found = [(f.code, f.message, f.help) for f in result.findings if f.severity == "error"]
    assert sorted(found) == sorted(expected(preset, values, defined, size))


FSDP = "def c():\n    return DreamTrainerConfig(device_parameters=DeviceParameters.FSDP({}))\n"


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (
            "tensor_parallel=3, compile_model=False",
            {"world_size": 8},
            'dp_replicate(1) * dp_shard("auto") * tp(3) needs a multiple of 3 processes, '
            "but WORLD_SIZE is 8.",
        ),
        (
            "dp_shard=4, compile_model=False",
            {"nnodes": 2, "nproc_per_node": 4},
            "dp_replicate(1) * dp_shard(4) = 4, but WORLD_SIZE is 8.",
        ),
    ],
)
def test_misfits(project: Check, arguments: str, options: dict[str, int], message: str) -> None:
    result = project(FSDP.format(arguments), **options, select=("DT1",))
    (finding,) = result.findings
    assert (finding.code, finding.message, finding.severity) == ("DT102", message, "error")
    assert finding.place.column == 49


def test_one_process_needs_no_sharding(project: Check) -> None:
    text = FSDP.format("compile_model=False")
    assert codes(project(text, world_size=8)) == ["DT201"]
    assert codes(project(text, world_size=1)) == []
    assert hooks(project(text, world_size=1), "c") == {}


LAUNCHED = (
    "def main(config):\n    Complete(config).fit()\n\n"
    "def one():\n    return DreamTrainerConfig()\n\n"
    "def three():\n    return DreamTrainerConfig(device_parameters="
    "DeviceParameters(dp_replicate=3, compile_model=False))\n\n"
)


@pytest.mark.parametrize(
    ("launch", "severities"),
    [
        ("cli(main, one)", ["error", "info"]),
        ("cli(main, three)", ["info", "error"]),
        ("cli(main, {'a': one, 'b': three})", ["error", "info"]),
        ("main(one())", ["error", "info"]),
        ("", ["error", "error"]),
    ],
)
def test_a_size_is_meant_for_what_is_launched(
    project: Check, launch: str, severities: list[str]
) -> None:
    result = project(LAUNCHED + launch, world_size=8, select=("DT1",))
    assert sorted(f.severity for f in result.findings) == sorted(severities)


def test_a_named_configuration_is_meant(project: Check) -> None:
    text = f"{LAUNCHED}cli(main, one)"
    result = project(text, world_size=8, select=("DT1",), config="three")
    assert codes(result, "error") == ["DT102"]


def test_an_undecided_degree_is_no_certain_misfit(project: Check) -> None:
    text = "import os\n\n" + FSDP.format("tensor_parallel=int(os.environ['TP'])")
    assert codes(project(text, world_size=8, select=("DT1",)), "error") == []
