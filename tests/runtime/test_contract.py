"""The table of hooks against what the runtime really calls, and the words of its problems."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from dream_trainer.configs import AXES, Axes, DeviceParameters, HookError
from dream_trainer.contract import BY_NAME, HOOKS, Hook, callers, problems
from dream_trainer.trainer import AbstractTrainer, BaseTrainer, DreamTrainer
from tests.runtime.tiny import FLOAT32, TinyTrainer, batches, config, set_up

D = DeviceParameters


def recording(trainer: type[DreamTrainer]) -> type[DreamTrainer]:
    """A subclass that notes the name of every hook when it is called, in `calls`."""

    def noted(name: str) -> Callable[..., Any]:
        def hook(self: Any, *args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            inherited = getattr(super(cls, self), name)
            is_own = name in trainer.defined_hooks() or BY_NAME[name].needed == "optional"
            return inherited(*args, **kwargs) if is_own else None

        return hook

    cls = type("Recorder", (trainer,), {hook.name: noted(hook.name) for hook in HOOKS})
    cls.calls = property(lambda self: self.__dict__.setdefault("_calls", []))  # type: ignore[attr-defined]
    return cls


HSDP = D.HSDP(dp_shard=2, checkpoint_activations=True, **(FLOAT32 | {"compile_model": True}))
EVERY_RUN = [
    "init_weights",
    "configure_optimizers",
    "configure_schedulers",
    "configure_dataloaders",
    "configure_metrics",
]


@pytest.mark.parametrize(
    ("parameters", "parallelism"),
    [
        (
            HSDP,
            ["apply_activation_checkpointing", "apply_compile", "apply_fully_shard"],
        ),
        (D.FSDP(**FLOAT32), ["apply_fully_shard"]),
        (D.DDP(**FLOAT32), ["apply_replicate"]),
        (D.DDP(**FLOAT32, force_fsdp=True), ["apply_fully_shard"]),
        (D.FSDP(**FLOAT32, force_ddp=True), ["apply_replicate"]),
        (
            D.FSDP(tensor_parallel=2, **FLOAT32),
            ["apply_tensor_parallel", "apply_fully_shard"],
        ),
        (
            D.DDP(checkpoint_activations=True, **(FLOAT32 | {"compile_model": True})),
            ["apply_activation_checkpointing", "apply_compile", "apply_replicate"],
        ),
    ],
)
def test_hooks_are_called_in_the_order_of_the_table(
    parameters: D, parallelism: list[str], fake_world: Any
) -> None:
    with fake_world(1, 4):
        trainer: Any = recording(TinyTrainer)(config(parameters))
        set_up(trainer)
    expected = ["configure_models", *parallelism, *EVERY_RUN]
    assert trainer.calls == expected
    assert [hook.name for hook in HOOKS if hook.name in expected] == expected


def test_one_device_calls_no_parallelism_hook() -> None:
    # The checks count the first batches, as the log does: not what is looked at here.
    parameters = config(max_steps=1, startup_checks=False)
    trainer: Any = recording(TinyTrainer)(parameters, batches(1), batches(1))
    trainer.fit()
    run = ["configure_models", *EVERY_RUN, "training_step", "validation_step", "count_items"]
    assert trainer.calls == run
    table = [hook.name for hook in HOOKS]
    assert sorted(run, key=table.index) == run


@pytest.mark.parametrize("force", ["force_ddp", "force_fsdp"])
def test_a_switch_calls_its_hook_on_one_rank(force: str) -> None:
    hook = {"force_ddp": "apply_replicate", "force_fsdp": "apply_fully_shard"}[force]
    parameters = D.SINGLE_DEVICE(**FLOAT32, **{force: True})
    trainer: Any = recording(TinyTrainer)(config(parameters, max_steps=1), batches(1))
    trainer.fit()
    assert trainer.calls.count(hook) == 1
    assert len([name for name in trainer.calls if name.startswith("apply_")]) == 1


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.name)
def test_parameters_are_those_of_the_method(hook: Hook) -> None:
    names = list(inspect.signature(getattr(AbstractTrainer, hook.name)).parameters.values())[1:]
    positional = [p.name for p in names if p.kind is not inspect.Parameter.VAR_KEYWORD]
    assert tuple(positional) == hook.parameters
    assert getattr(AbstractTrainer, hook.name).__doc__


def test_table_is_complete_and_its_needs_are_fields() -> None:
    methods = {
        name
        for name in vars(AbstractTrainer)
        if name.startswith(("configure_", "apply_", "init_", "training_", "validation_"))
    }
    assert methods <= set(BY_NAME)
    assert len(BY_NAME) == len(HOOKS)
    fields = set(D.__dataclass_fields__)
    for hook in HOOKS:
        if not isinstance(hook.needed, str):
            assert set(hook.needed) <= fields
        assert hook.purpose and not hook.purpose.endswith(".")


def test_optional_hooks_have_defaults_and_the_others_none() -> None:
    trainer = AbstractTrainer(None)
    for hook in HOOKS:
        if hook.needed == "optional":
            continue
        with pytest.raises(NotImplementedError):
            getattr(trainer, hook.name)(*hook.parameters)


def test_defined_hooks() -> None:
    assert DreamTrainer.defined_hooks() == set()
    assert BaseTrainer.defined_hooks() == set()
    assert TinyTrainer.defined_hooks() == {
        "configure_models",
        "apply_fully_shard",
        "apply_replicate",
        "configure_optimizers",
        "configure_dataloaders",
        "training_step",
        "validation_step",
    }


ALL = {hook.name for hook in HOOKS}
ALWAYS = {hook.name for hook in HOOKS if hook.needed == "always"}


class TestCallers:
    @pytest.mark.parametrize(
        ("hook", "parameters", "expected"),
        [
            ("configure_models", D.FSDP(), []),
            ("apply_fully_shard", D.SINGLE_DEVICE(), []),
            ("apply_fully_shard", D.DDP(), []),
            ("apply_fully_shard", D.FSDP(force_ddp=True), []),
            ("apply_fully_shard", D.FSDP(), ["dp_shard"]),
            ("apply_fully_shard", D.FSDP(context_parallel=2), ["dp_shard", "context_parallel"]),
            ("apply_fully_shard", D.HSDP(dp_shard=2), ["dp_shard"]),
            ("apply_fully_shard", D.DDP(force_fsdp=True), ["force_fsdp"]),
            ("apply_fully_shard", D.SINGLE_DEVICE(force_fsdp=True), ["force_fsdp"]),
            ("apply_replicate", D.SINGLE_DEVICE(), []),
            ("apply_replicate", D.FSDP(), []),
            ("apply_replicate", D.HSDP(dp_shard=2), []),
            ("apply_replicate", D.DDP(), ["dp_replicate"]),
            ("apply_replicate", D.FSDP(force_ddp=True), ["force_ddp"]),
            ("apply_tensor_parallel", D.FSDP(), []),
            ("apply_tensor_parallel", D.FSDP(tensor_parallel="auto"), ["tensor_parallel"]),
            ("apply_pipeline_parallel", D.DDP(), []),
            ("apply_pipeline_parallel", D.DDP(pipeline_parallel=2), ["pipeline_parallel"]),
            ("apply_compile", D(compile_model=False), []),
            ("apply_compile", D(), ["compile_model"]),
            ("apply_activation_checkpointing", D(), []),
            (
                "apply_activation_checkpointing",
                D(checkpoint_activations=True),
                ["checkpoint_activations"],
            ),
        ],
    )
    def test_from_degrees(self, hook: str, parameters: D, expected: list[str]) -> None:
        assert callers(BY_NAME[hook], parameters, parameters.degrees) == expected

    def test_from_resolved_sizes(self) -> None:
        one = Axes().sizes
        assert callers(BY_NAME["apply_fully_shard"], D.FSDP(), one) == []
        assert callers(BY_NAME["apply_replicate"], D.DDP(), one) == []
        assert callers(BY_NAME["apply_fully_shard"], D.FSDP(force_fsdp=True), one)
        two = Axes(dp_replicate=1, dp_shard=2).sizes
        assert callers(BY_NAME["apply_fully_shard"], D.HSDP(dp_shard=2), two) == ["dp_shard"]

    def test_hsdp_of_one_rank_per_group_replicates(self) -> None:
        sizes = Axes(dp_replicate=2, dp_shard=1).sizes
        parameters = D.HSDP(dp_shard=1)
        assert callers(BY_NAME["apply_replicate"], parameters, sizes) == ["dp_replicate"]


class TestProblems:
    def texts(self, parameters: D, defined: set[str]) -> list[str]:
        found = problems(parameters, parameters.degrees, defined, "MyTrainer")
        return [f"{problem} [{problem.code}]" for problem in found]

    @pytest.mark.parametrize(
        "parameters",
        [
            D(),
            D.DDP(),
            D.FSDP(),
            D.HSDP(dp_shard=2),
            D.FSDP(tensor_parallel=2),
            D.HSDP(dp_shard=2, tensor_parallel="auto"),
            D.FSDP(checkpoint_activations=True, force_fsdp=True),
        ],
    )
    def test_none(self, parameters: D) -> None:
        assert self.texts(parameters, ALL) == []

    def test_optional_hooks_are_no_problem(self) -> None:
        assert self.texts(D(compile_model=False), ALWAYS) == []

    def test_every_run(self) -> None:
        assert self.texts(D(compile_model=False), set()) == [
            "Every run calls configure_models(), which MyTrainer does not define. Define it: "
            "assign the models; runs on the meta device. [DT206]",
            "Every run calls configure_optimizers(), which MyTrainer does not define. Define it: "
            "return {model: optimizer}. [DT206]",
            "Every run calls configure_dataloaders(), which MyTrainer does not define. Define "
            "it: return the train and validation iterables. [DT206]",
            "Every run calls training_step(batch, batch_idx), which MyTrainer does not define. "
            "Define it: forward, backward, step; return values to log. [DT206]",
        ]

    def test_settings(self) -> None:
        assert self.texts(
            D.FSDP(tensor_parallel=2, checkpoint_activations=True, force_fsdp=True), ALWAYS
        ) == [
            "tensor_parallel=2 calls apply_tensor_parallel(tp_mesh), which MyTrainer does not "
            "define. Define it, or set tensor_parallel=1. [DT201]",
            "checkpoint_activations=True calls apply_activation_checkpointing(), which MyTrainer "
            "does not define. Define it, or set checkpoint_activations=False. [DT201]",
            "compile_model=True calls apply_compile(), which MyTrainer does not define. "
            "Define it, or set compile_model=False. [DT201]",
            'dp_shard="auto" and force_fsdp=True call apply_fully_shard(config), which MyTrainer '
            "does not define. Define it, or set dp_shard=1 and force_fsdp=False. [DT201]",
        ]

    @pytest.mark.parametrize(
        ("parameters", "text"),
        [
            (
                D.DDP(compile_model=False),
                'dp_replicate="auto" calls apply_replicate(dp_replicate_mesh), which MyTrainer '
                "does not define. Define it, or set dp_replicate=1. [DT201]",
            ),
            (
                D.FSDP(compile_model=False, force_ddp=True),
                "force_ddp=True calls apply_replicate(dp_replicate_mesh), which MyTrainer does "
                "not define. Define it, or set force_ddp=False. [DT201]",
            ),
            (
                D.DDP(compile_model=False, force_fsdp=True),
                "force_fsdp=True calls apply_fully_shard(config), which MyTrainer does not "
                "define. Define it, or set force_fsdp=False. [DT201]",
            ),
        ],
    )
    def test_switches(self, parameters: D, text: str) -> None:
        assert self.texts(parameters, ALWAYS) == [text]

    def test_the_remedy_removes_the_problem(self) -> None:
        for name in AXES.values():
            assert self.texts(D(compile_model=False, **{name: 1}), ALWAYS) == []

    def test_unsupported(self) -> None:
        for supported in (
            D.FSDP(pipeline_parallel=2, context_parallel="auto", dp_shard=2),
            D.HSDP(dp_shard=2, tensor_parallel=2),
            D.DDP(pipeline_parallel=2),
        ):
            assert self.texts(supported, ALL) == []
        assert self.texts(D(dp_replicate=2, tensor_parallel=2), ALL) == [
            "tensor_parallel=2 beside replicated data parallelism averages wrong gradients. "
            "Use DeviceParameters.FSDP() or HSDP(). [DT115]"
        ]

    def test_start_up_says_all_of_it_and_where(self) -> None:
        class Bare(DreamTrainer):
            def training_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
                return {}

        with pytest.raises(HookError) as caught:
            set_up(Bare(config(D(compile_model=True))))
        lines = str(caught.value).splitlines()
        assert [line.split(", which")[0] for line in lines] == [
            "Every run calls configure_models()",
            "compile_model=True calls apply_compile()",
            "Every run calls configure_optimizers()",
            "Every run calls configure_dataloaders()",
        ]
        first = inspect.getsourcelines(Bare)[1]
        assert caught.value.place == f"\n  --> {__file__}:{first}, class Bare"
        assert isinstance(caught.value, NotImplementedError)
