"""Parameters: what they refuse, how axes are solved, and that no torch is needed for it."""

import dataclasses
import inspect
import os
import pickle
import re
import subprocess
import sys
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dream_trainer.configs import (
    AXES,
    Axes,
    CheckpointParameters,
    Comm,
    ConfigError,
    DeviceParameters,
    DreamTrainerConfig,
    FaultToleranceParameters,
    LoggingParameters,
    TrainingParameters,
    WandbLoggingParameters,
    resolve_axes,
)
from dream_trainer.configs.device import Options
from tests.conftest import child_environment

D = DeviceParameters


def refusal(build: Any, *args: Any, **values: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        build(*args, **values)
    return f"{caught.value} [{caught.value.code}]"


class TestAxes:
    def test_order_and_fields(self) -> None:
        assert list(AXES) == ["pp", "dp_replicate", "dp_shard", "cp", "tp"]
        fields = {field.name for field in dataclasses.fields(D)}
        assert set(AXES.values()) <= fields
        assert list(Axes().sizes) == list(AXES)

    @pytest.mark.parametrize(
        ("parameters", "world", "node", "expected"),
        [
            (D.SINGLE_DEVICE(), 1, 1, Axes()),
            (D(), 1, None, Axes()),
            (D.DDP(), 1, 1, Axes()),
            (D.DDP(), 6, 6, Axes(dp_replicate=6)),
            (D.DDP(dp_replicate=4), 4, 4, Axes(dp_replicate=4)),
            (D.FSDP(), 8, 8, Axes(dp_shard=8)),
            (D.FSDP(), 16, 8, Axes(dp_shard=16)),
            (D.FSDP(tensor_parallel="auto"), 8, 8, Axes(tp=8)),
            (D.FSDP(tensor_parallel="auto"), 16, 8, Axes(dp_shard=2, tp=8)),
            (D.FSDP(tensor_parallel="auto"), 8, 1, Axes(dp_shard=8)),
            (D.FSDP(tensor_parallel="auto", dp_shard=4), 8, 8, Axes(dp_shard=4, tp=2)),
            (D.FSDP(tensor_parallel=2), 8, 8, Axes(dp_shard=4, tp=2)),
            (D.FSDP(context_parallel=2, tensor_parallel=2), 8, 8, Axes(dp_shard=2, cp=2, tp=2)),
            (D.FSDP(pipeline_parallel=2), 8, 8, Axes(pp=2, dp_shard=4)),
            (D.HSDP(dp_shard=4), 8, 4, Axes(dp_replicate=2, dp_shard=4)),
            (D.HSDP(dp_shard=8), 8, 8, Axes(dp_replicate=1, dp_shard=8)),
            (D.HSDP(dp_shard="auto", dp_replicate=2), 8, 8, Axes(dp_replicate=2, dp_shard=4)),
            (D.FSDP(force_ddp=True), 4, 4, Axes(dp_replicate=4)),
            (D.HSDP(dp_shard=2, force_ddp=True), 8, 8, Axes(dp_replicate=8)),
            (D(dp_replicate=2, dp_shard=2, force_ddp=True), 4, 4, Axes(dp_replicate=4)),
            (D.DDP(force_fsdp=True), 4, 4, Axes(dp_shard=4)),
            (D.DDP(dp_replicate=3, force_fsdp=True), 3, 3, Axes(dp_shard=3)),
            (D.FSDP(tensor_parallel="auto", force_ddp=True), 4, 2, Axes(dp_replicate=2, tp=2)),
        ],
    )
    def test_resolved(self, parameters: D, world: int, node: int | None, expected: Axes) -> None:
        assert resolve_axes(parameters, world, node) == expected
        assert expected.world_size == world

    def test_data_size_and_words(self) -> None:
        axes = Axes(pp=2, dp_replicate=3, dp_shard=4, cp=5, tp=6)
        assert (axes.dp_size, axes.world_size) == (12, 720)
        assert str(axes) == "pp=2 x dp_replicate=3 x dp_shard=4 x cp=5 x tp=6"
        assert str(Axes()) == "one device"

    @pytest.mark.parametrize(
        ("parameters", "world", "node", "text"),
        [
            (
                D.SINGLE_DEVICE(),
                2,
                2,
                "dp_replicate(1) * dp_shard(1) = 1, but WORLD_SIZE is 2. Launch 1 (a single "
                "device), or choose DeviceParameters.FSDP() or DDP(). [DT102]",
            ),
            (
                D.HSDP(dp_shard=4),
                6,
                6,
                'dp_replicate("auto") * dp_shard(4) needs a multiple of 4 processes, but '
                "WORLD_SIZE is 6. Launch 4 or 8, or set dp_shard to one of 1, 2, 3, 6. [DT102]",
            ),
            (
                D.HSDP(dp_shard=4),
                2,
                2,
                'dp_replicate("auto") * dp_shard(4) needs a multiple of 4 processes, but '
                "WORLD_SIZE is 2. Launch 4, or set dp_shard to one of 1, 2. [DT102]",
            ),
            (
                D.DDP(dp_replicate=4),
                6,
                6,
                "dp_replicate(4) * dp_shard(1) = 4, but WORLD_SIZE is 6. Launch 4, or set "
                'dp_replicate="auto" (it would be 6). [DT102]',
            ),
            (
                D(dp_shard=4, tensor_parallel=3),
                8,
                8,
                "dp_replicate(1) * dp_shard(4) * tp(3) = 12, but WORLD_SIZE is 8. Launch 12, "
                "or set tensor_parallel=2. [DT102]",
            ),
            (
                D(dp_shard=3, tensor_parallel=5),
                8,
                8,
                "dp_replicate(1) * dp_shard(3) * tp(5) = 15, but WORLD_SIZE is 8. "
                "Launch 15. [DT102]",
            ),
            (
                D.FSDP(tensor_parallel=16),
                16,
                8,
                "tensor_parallel=16 does not fit into one node of 8 processes: its collectives "
                "would cross the network in every layer. Set tensor_parallel to one of 1, 2, 4, "
                "8. [DT106]",
            ),
            (
                D.FSDP(tensor_parallel=3),
                24,
                8,
                "tensor_parallel=3 does not fit into one node of 8 processes: its collectives "
                "would cross the network in every layer. Set tensor_parallel to one of 1, 2, 4, "
                "8. [DT106]",
            ),
        ],
    )
    def test_misfit(self, parameters: D, world: int, node: int, text: str) -> None:
        assert refusal(resolve_axes, parameters, world, node) == text


SIZES = st.sampled_from([1, 1, 2, 3, 4, 6])
FORCES = st.sampled_from([{}, {}, {"force_ddp": True}, {"force_fsdp": True}])


@st.composite
def layouts(draw: st.DrawFn) -> tuple[D, int, int]:
    """Parameters with at most one "auto" beside tensor_parallel, world size, node size."""
    degrees: dict[str, Any] = {name: draw(SIZES) for name in AXES.values()}
    if auto := draw(st.sampled_from([None, *AXES.values()])):
        degrees[auto] = "auto"
    if draw(st.booleans()):
        degrees["tensor_parallel"] = "auto"
    node = draw(st.sampled_from([1, 2, 3, 4, 6, 8]))
    return D(**degrees, **draw(FORCES)), node * draw(st.sampled_from([1, 2, 3])), node


def fits(parameters: D, world: int, node: int) -> bool:
    try:
        return resolve_axes(parameters, world, node).world_size == world
    except ConfigError:
        return False


def nodes_of(world: int) -> list[int]:
    return [node for node in range(1, world + 1) if world % node == 0]


class TestRemedies:
    """Whatever a message proposes works."""

    @settings(max_examples=300, deadline=None, derandomize=True)
    @given(layouts())
    def test_resolved_axes_fill_the_world(self, layout: tuple[D, int, int]) -> None:
        parameters, world, node = layout
        try:
            axes = resolve_axes(parameters, world, node)
        except ConfigError:
            return
        assert axes.world_size == world
        assert node % axes.tp == 0
        for axis, degree in parameters.degrees.items():
            assert degree == "auto" or axes.sizes[axis] == degree

    @settings(max_examples=300, deadline=None, derandomize=True)
    @given(layouts())
    def test_launch(self, layout: tuple[D, int, int]) -> None:
        for size in self.proposed(layout, r"Launch ([\d or]+)"):
            assert any(fits(layout[0], size, node) for node in nodes_of(size)), size

    @pytest.mark.parametrize("code", ["DT102", "DT106"])
    def test_set_to_a_number(self, code: str) -> None:
        @settings(max_examples=400, deadline=None, derandomize=True)
        @given(layouts())
        def check(layout: tuple[D, int, int]) -> None:
            parameters, world, node = layout
            text = self.message(layout, code)
            for name, values in re.findall(r"[Ss]et (\w+)(?:=| to one of )([\d, ]+)\.", text):
                for value in re.findall(r"\d+", values):
                    changed = dataclasses.replace(parameters, **{name: int(value)})
                    assert fits(changed, world, node), f"{text} but {name}={value} fails"

        check()

    @settings(max_examples=300, deadline=None, derandomize=True)
    @given(layouts())
    def test_set_to_auto(self, layout: tuple[D, int, int]) -> None:
        parameters, world, node = layout
        text = self.message(layout)
        if match := re.search(r'set (\w+)="auto" \(it would be (\d+)\)', text):
            changed = dataclasses.replace(parameters, **{match[1]: "auto"})
            axes = resolve_axes(changed, world, node)
            axis = next(axis for axis, name in AXES.items() if name == match[1])
            assert axes.sizes[axis] == int(match[2]), text

    def message(self, layout: tuple[D, int, int], code: str = "DT102") -> str:
        try:
            resolve_axes(*layout)
        except ConfigError as error:
            return str(error) if error.code == code else ""
        return ""

    def proposed(self, layout: tuple[D, int, int], pattern: str) -> list[int]:
        match = re.search(pattern, self.message(layout))
        return [int(size) for size in re.findall(r"\d+", match[1])] if match else []


class TestDeviceParameters:
    @pytest.mark.parametrize("name", list(AXES.values()))
    @pytest.mark.parametrize("value", [0, -1, 1.5, 2.0, "two", None, True, "AUTO"])
    def test_no_degree(self, name: str, value: Any) -> None:
        assert refusal(D, **{name: value}) == (
            f"{name}={value!r} is not a degree of parallelism. "
            'Use a whole number from 1, or "auto". [DT104]'
        )

    def test_two_autos(self) -> None:
        D(dp_shard="auto", tensor_parallel="auto")
        D(pipeline_parallel="auto", tensor_parallel="auto")
        assert refusal(D, dp_shard="auto", dp_replicate="auto") == (
            'dp_replicate and dp_shard are both "auto", but only one axis can take what the '
            "others leave. Give all but one of them a number. [DT101]"
        )

    def test_two_autos_beside_tensor_parallel(self) -> None:
        text = refusal(D, dp_shard="auto", context_parallel="auto", tensor_parallel="auto")
        assert "[DT101]" in text and "dp_shard" in text and "context_parallel" in text

    def test_forces_contradict(self) -> None:
        assert refusal(D, force_ddp=True, force_fsdp=True) == (
            "force_ddp=True and force_fsdp=True contradict each other. "
            "Set one of them to False. [DT105]"
        )

    def test_async_tensor_parallel(self) -> None:
        D(async_tensor_parallel=True, compile_model=False)  # no tp: nothing to overlap
        D(async_tensor_parallel=None, compile_model=False, tensor_parallel=2)
        D(async_tensor_parallel=False, compile_model=False, tensor_parallel=2)
        D(async_tensor_parallel=True, compile_model=True, tensor_parallel=2)
        for tensor_parallel in (2, "auto"):
            assert refusal(
                D,
                async_tensor_parallel=True,
                compile_model=False,
                tensor_parallel=tensor_parallel,
            ) == (
                "async_tensor_parallel=True needs compile_model=True: it is a compiler pass. "
                "Turn compilation on, or leave async_tensor_parallel out. [DT103]"
            )

    @pytest.mark.parametrize("name", ["param_dtype", "reduce_dtype"])
    @pytest.mark.parametrize("value", ["float16", "torch.float64", "bf16", None, 32])
    def test_dtype_refused(self, name: str, value: Any) -> None:
        assert refusal(D, **{name: value}) == (
            f"{name}={value!r} is not possible. Use float32 or bfloat16. [DT114]"
        )

    def test_dtype_names(self) -> None:
        import torch

        for given_dtype in ("bfloat16", "torch.bfloat16", torch.bfloat16):
            assert D(param_dtype=given_dtype).param_dtype == "bfloat16"
        assert D().param_dtype == "bfloat16"
        assert D().reduce_dtype == "float32"

    @pytest.mark.parametrize("value", [-0.1, 1.1, nan, "all"])
    def test_budget(self, value: Any) -> None:
        for possible in (0, 0.5, 1):
            D(activation_memory_budget=possible)
        assert refusal(D, activation_memory_budget=value) == (
            f"activation_memory_budget={value!r} is not possible. Use a share from 0 to 1. [DT114]"
        )

    def test_pipeline_and_context(self) -> None:
        D(pipeline_microbatches=1, context_parallel_rotate_method="alltoall")
        assert refusal(D, pipeline_microbatches=0) == (
            "pipeline_microbatches=0 is not possible. Use a whole number from 1, or None. [DT114]"
        )
        assert refusal(D, context_parallel_rotate_method="ring") == (
            "context_parallel_rotate_method='ring' is not possible. "
            "Use allgather or alltoall. [DT114]"
        )

    @pytest.mark.parametrize("name", ["init_timeout_seconds", "train_timeout_seconds"])
    @pytest.mark.parametrize("value", [0, -3, 1.5, None, True])
    def test_comm(self, name: str, value: Any) -> None:
        Comm(**{name: 1})
        assert refusal(Comm, **{name: value}) == (
            f"{name}={value!r} is not possible. Use a whole number of seconds, from 1. [DT114]"
        )

    def test_options_are_the_other_fields(self) -> None:
        fields = {field.name: field.type for field in dataclasses.fields(D)}
        options = dict(Options.__annotations__)
        assert set(options) == set(fields) - set(AXES.values())
        shown = {
            name: str(getattr(kind, "__forward_arg__", kind)) for name, kind in options.items()
        }
        assert shown == {name: str(fields[name]) for name in shown}

    @pytest.mark.parametrize("preset", ["SINGLE_DEVICE", "DDP", "FSDP", "HSDP"])
    def test_presets_take_every_option(self, preset: str) -> None:
        build = getattr(D, preset)
        degrees = {"dp_shard": 2} if preset == "HSDP" else {}
        values: dict[str, Any] = {
            "param_dtype": "float32",
            "reduce_dtype": "bfloat16",
            "allow_low_precision_params": True,
            "compile_model": False,
            "compiled_autograd": True,
            "checkpoint_activations": True,
            "activation_memory_budget": 0.5,
            "cpu_offload": True,
            "async_tensor_parallel": False,
            "loss_parallel": True,
            "context_parallel_rotate_method": "alltoall",
            "pipeline_schedule": "GPipe",
            "pipeline_microbatches": 3,
            "force_ddp": True,
            "force_fsdp": False,
            "comm": Comm(init_timeout_seconds=7),
            "error_if_nonfinite": True,
        }
        assert set(values) == set(Options.__annotations__)
        built = build(**degrees, **values)
        assert {name: getattr(built, name) for name in values} == values

    def test_presets_never_read_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def build() -> list[D]:
            return [
                D.SINGLE_DEVICE(),
                D.DDP(),
                D.FSDP(),
                D.FSDP(tensor_parallel="auto"),
                D.HSDP(dp_shard=2),
            ]

        without = build()
        for name, value in {"WORLD_SIZE": "64", "RANK": "3", "LOCAL_WORLD_SIZE": "8"}.items():
            monkeypatch.setenv(name, value)
        assert build() == without
        assert without[1].dp_replicate == "auto"
        assert (without[2].dp_shard, without[2].tensor_parallel) == ("auto", 1)
        assert without[3].tensor_parallel == "auto"
        assert (without[4].dp_replicate, without[4].tensor_parallel) == ("auto", 1)

    def test_resolution_never_reads_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WORLD_SIZE", "64")
        monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
        assert resolve_axes(D.FSDP(tensor_parallel="auto"), 8) == Axes(tp=8)

    def test_copies(self) -> None:
        first = D.HSDP(dp_shard=2, param_dtype="torch.float32")
        second = dataclasses.replace(first, compile_model=False)
        assert second == D.HSDP(dp_shard=2, param_dtype="float32", compile_model=False)
        assert first.compile_model
        with pytest.raises(ConfigError):
            dataclasses.replace(first, dp_shard=0)

    def test_a_copy_of_a_forced_one_keeps_its_degrees(self) -> None:
        forced = dataclasses.replace(D.FSDP(), force_ddp=True)
        assert resolve_axes(forced, 4) == Axes(dp_replicate=4)
        assert resolve_axes(dataclasses.replace(forced, force_ddp=False), 4) == Axes(dp_shard=4)

    def test_force_fsdp_shards_what_would_be_replicated(self) -> None:
        forced = D.HSDP(dp_shard=2, force_fsdp=True)
        assert resolve_axes(forced, 8) == Axes(dp_shard=8), "--force-fsdp: shard over all dp ranks"

    def test_errors_survive_pickling(self) -> None:
        error = ConfigError("DT1", "Fact.", "Remedy.")
        again = pickle.loads(pickle.dumps(error))
        assert (str(again), again.code) == ("Fact. Remedy.", "DT1")
        assert isinstance(again, ValueError)


class TestTrainingParameters:
    def test_possible(self) -> None:
        for epochs in (None, 1, 7, inf):
            TrainingParameters(n_epochs=epochs)
        for name in ("train_steps_per_epoch", "max_steps", "val_steps_per_epoch"):
            TrainingParameters(**{name: 1})
            TrainingParameters(**{name: None})
        TrainingParameters(val_steps_per_epoch=0, num_sanity_val_steps=0, gradient_clip_val=0.1)

    @pytest.mark.parametrize(
        ("name", "value", "allowed"),
        [
            ("n_epochs", 0, 'a whole number from 1, float("inf") or None'),
            ("n_epochs", -inf, 'a whole number from 1, float("inf") or None'),
            ("n_epochs", nan, 'a whole number from 1, float("inf") or None'),
            ("n_epochs", 1.5, 'a whole number from 1, float("inf") or None'),
            ("train_steps_per_epoch", 0, "a whole number from 1, or None"),
            ("max_steps", 0, "a whole number from 1, or None"),
            ("max_steps", inf, "a whole number from 1, or None"),
            ("val_steps_per_epoch", -1, "a whole number from 0, or None"),
            ("val_every_n_steps", 0, "a whole number from 1, or None"),
            ("num_sanity_val_steps", -1, "a whole number from 0"),
            ("num_sanity_val_steps", None, "a whole number from 0"),
            ("gradient_accumulation_steps", 0, "a whole number from 1"),
            ("gradient_accumulation_steps", True, "a whole number from 1"),
            ("gradient_clip_val", 0, "a number above 0, or None for no clipping"),
            ("gradient_clip_val", -1.0, "a number above 0, or None for no clipping"),
            ("gradient_clip_val", nan, "a number above 0, or None for no clipping"),
            ("gradient_clip_val", "1", "a number above 0, or None for no clipping"),
        ],
    )
    def test_refused(self, name: str, value: Any, allowed: str) -> None:
        assert refusal(TrainingParameters, **{name: value}) == (
            f"{name}={value!r} is not possible. Use {allowed}. [DT114]"
        )

    @pytest.mark.parametrize(
        ("values", "epochs"),
        [
            ({}, 1),
            ({"train_steps_per_epoch": 5}, 1),
            ({"n_epochs": 3}, 3),
            ({"max_steps": 5}, inf),
            ({"max_steps": 5, "n_epochs": 2}, 2),
            ({"n_epochs": inf}, inf),
        ],
    )
    def test_epochs(self, values: dict[str, Any], epochs: float) -> None:
        assert TrainingParameters(**values).epochs == epochs


class TestOtherParameters:
    @pytest.mark.parametrize("cls", [LoggingParameters, WandbLoggingParameters])
    @pytest.mark.parametrize("value", [0, -1, 2.5, None, True])
    def test_logging(self, cls: type, value: Any) -> None:
        cls(log_every_n_steps=1)
        assert refusal(cls, log_every_n_steps=value) == (
            f"log_every_n_steps={value!r} is not possible. Use a whole number from 1. [DT114]"
        )

    def test_a_config_of_two_fields_is_complete(self) -> None:
        made = DreamTrainerConfig(
            device_parameters=D.FSDP(), training_parameters=TrainingParameters(max_steps=1)
        )
        assert (made.project, made.group, made.seed, made.callbacks) == (
            "dream",
            "default",
            42,
            None,
        )
        assert isinstance(made.logging_parameters, LoggingParameters)

    def test_configs_share_nothing(self) -> None:
        first, second = DreamTrainerConfig(), DreamTrainerConfig()
        first.training_parameters.max_steps = 3
        first.device_parameters.compile_model = True
        assert second == DreamTrainerConfig()

    @pytest.mark.parametrize(
        "cls",
        [
            D,
            Comm,
            TrainingParameters,
            LoggingParameters,
            WandbLoggingParameters,
            CheckpointParameters,
            FaultToleranceParameters,
            DreamTrainerConfig,
        ],
    )
    def test_keywords_only_and_documented(self, cls: type) -> None:
        assert cls.__doc__ and not cls.__doc__.startswith(f"{cls.__name__}(")
        kinds = {p.kind for p in inspect.signature(cls).parameters.values()}
        assert kinds == {inspect.Parameter.KEYWORD_ONLY}
        assert dataclasses.replace(cls()) == cls()


@pytest.mark.parametrize(
    "statement",
    [
        "import dream_trainer",
        "import dream_trainer.configs",
        "import dream_trainer.contract",
        "from dream_trainer import DreamTrainerConfig",
        "from dream_trainer.configs import DeviceParameters as D, resolve_axes\n"
        "resolve_axes(D.FSDP(param_dtype='bfloat16'), 8)",
    ],
)
def test_needs_no_torch(statement: str) -> None:
    heavy = "{'torch', 'numpy', 'rich', 'typer'} & set(sys.modules)"
    code = f"import sys\n{statement}\nassert not {heavy}, {heavy}"
    env = {"PYTHONPATH": child_environment()["PYTHONPATH"], "PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
