"""The training script's command line, and how many processes it launches."""

import dataclasses
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dream_trainer import configs
from dream_trainer.callbacks import Callback
from dream_trainer.configs import DeviceParameters, DreamTrainerConfig, TrainingParameters
from dream_trainer.utils import entrypoint
from dream_trainer.utils.cli import cli
from dream_trainer.utils.entrypoint import processes
from dream_trainer.utils.modifiers import MODIFIERS, register_modifier
from tests.conftest import run_bounded

D = DeviceParameters
RUNTIME = Path(__file__).parents[2] / "runtime"


@dataclasses.dataclass(kw_only=True)
class Config(DreamTrainerConfig):
    batch_size: int = 8
    learning_rate: float = 0.1


@pytest.fixture(autouse=True)
def modifiers_of_the_runtime() -> Iterator[None]:
    before = dict(MODIFIERS)
    yield
    MODIFIERS.clear()
    MODIFIERS.update(before)


@dataclasses.dataclass
class Result:
    code: int
    out: str
    err: str
    ran: list[Any]
    launched: list[int]


Call = Callable[..., Result]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """`call(config, *arguments)` is `python train.py *arguments`, seeing no accelerator."""

    def run(config: Any, *arguments: str, accelerators: int = 0) -> Result:
        ran: list[Any] = []
        launched: list[int] = []

        def main(config: Any) -> None:
            """Train it.

            In detail.
            """
            ran.append(config)

        monkeypatch.setattr(entrypoint, "accelerator_count", lambda: accelerators)
        monkeypatch.setattr(entrypoint, "launch", launched.append)
        monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
        monkeypatch.setenv("COLUMNS", "100")
        monkeypatch.setenv("TERM", "dumb")
        monkeypatch.setenv("NO_COLOR", "1")
        with pytest.raises(SystemExit) as ended:
            cli(main, config)
        told = capsys.readouterr()
        return Result(int(ended.value.code or 0), told.out, told.err, ran, launched)

    return run


def debug() -> Config:
    return Config(experiment="debug")


def fsdp() -> Config:
    return Config(experiment="fsdp", device_parameters=D.FSDP())


class TestConfigs:
    @pytest.mark.parametrize("choice", [debug(), debug, lambda: debug(), {"only": debug}])
    def test_one(self, choice: Any, call: Call) -> None:
        result = call(choice)
        assert (result.code, result.err) == (0, "")
        assert result.ran == [debug()]
        assert "--config" not in call(choice, "--help").out

    def test_a_class_is_a_factory(self, call: Call) -> None:
        assert call(Config).ran == [Config()]

    def test_a_config_is_passed_on_itself(self, call: Call) -> None:
        made = debug()
        assert call(made).ran[0] is made

    @pytest.mark.parametrize(
        ("arguments", "name"),
        [((), "debug"), (("--config", "fsdp"), "fsdp"), (("--config", "debug"), "debug")],
    )
    def test_a_mapping(self, arguments: tuple[str, ...], name: str, call: Call) -> None:
        assert call({"debug": debug, "fsdp": fsdp()}, *arguments).ran[0].experiment == name

    def test_only_the_chosen_factory_runs(self, call: Call) -> None:
        def fails() -> Config:
            raise AssertionError("not chosen")

        assert call({"debug": debug, "other": fails}).code == 0

    def test_unknown(self, call: Call) -> None:
        result = call({"debug": debug, "fsdp": fsdp}, "--config", "fsdb")
        assert result.code == 2 and result.ran == []
        assert "'fsdb' is not one of debug, fsdp." in result.err

    @pytest.mark.parametrize("argument", ["--no-such-thing", "stray", "--grad-accum-steps=two"])
    def test_unknown_option(self, argument: str, call: Call) -> None:
        result = call(debug, argument)
        assert result.code == 2 and result.ran == []
        assert argument.split("=")[0] in result.err


class TestShowing:
    def test_help(self, call: Call) -> None:
        result = call({"debug": debug, "fsdp": fsdp}, "--help")
        assert result.code == 0 and result.ran == []
        assert call({"debug": debug, "fsdp": fsdp}, "-h").out == result.out
        for modifier in MODIFIERS.values():
            assert modifier.flag in result.out
            assert modifier.help and modifier.help.split()[0] in result.out
        for text in ("--cfg", "--config", "Which configuration: debug, fsdp. Default: debug."):
            assert text in " ".join(result.out.replace("│", "").split())

    def test_cfg(self, call: Call) -> None:
        result = call({"debug": debug, "fsdp": fsdp}, "--config", "fsdp", "--no-compile", "--cfg")
        assert result.code == 0 and result.ran == [] and result.launched == []
        lines = result.out.splitlines()
        assert lines[0] == "Config("
        assert '    experiment="fsdp",' in lines and '        dp_shard="auto",' in lines
        assert "        compile_model=False,  # --no-compile" in lines
        assert "        comm=Comm(" in lines and "            init_timeout_seconds=300," in lines
        assert "    batch_size=8," in lines and "    callbacks=None," in lines
        assert lines[-1] == "# mesh: one device on 1 process"
        assert sum("  # --" in line for line in lines) == 1, "what was changed, and nothing else"

    def test_python_makes_the_same_configuration(self, call: Call) -> None:
        names = {
            name: getattr(module, name)
            for module in (configs, sys.modules[__name__])
            for name in dir(module)
        }
        for given in (debug, fsdp, ODD):
            out = call(given, "--set", "training_parameters.n_epochs=inf", "--cfg", "python").out
            expected = given() if callable(given) else given
            training = dataclasses.replace(expected.training_parameters, n_epochs=float("inf"))
            assert eval(out, names) == dataclasses.replace(expected, training_parameters=training)

    def test_json_and_yaml_hold_the_same(self, call: Call) -> None:
        arguments = ("--grad-accum-steps", "3", "--set", "batch_size=2")
        data = json.loads(call(fsdp, *arguments, "--cfg", "json").out)
        changed = {
            "training_parameters.gradient_accumulation_steps": "--grad-accum-steps",
            "batch_size": "--set",
        }
        assert data.pop("_changed") == changed
        assert data["device_parameters"]["dp_shard"] == "auto" and data["batch_size"] == 2
        text = call(fsdp, *arguments, "--cfg=yaml").out
        assert "batch_size: 2  # --set" in text
        assert yaml.safe_load(text) == data

    def test_cfg_before_other_options_and_with_a_wrong_form(self, call: Call) -> None:
        assert "batch_size=3,  # --set" in call(debug, "--cfg", "--set", "batch_size=3").out
        assert call(debug, "--cfg=xml").code == 2


def device(**changes: Any) -> dict[str, Any]:
    return {"device_parameters": changes}


def training(**changes: Any) -> dict[str, Any]:
    return {"training_parameters": changes}


ODD = Config(
    device_parameters=D.HSDP(dp_shard=2, tensor_parallel="auto"),
    training_parameters=TrainingParameters(num_sanity_val_steps=3),
)


class TestModifiers:
    @pytest.mark.parametrize(
        ("arguments", "changes"),
        [
            ((), {}),
            (("--no-compile",), device(compile_model=False)),
            (("--ckpt-acts",), device(checkpoint_activations=True)),
            (("--cpu-offload",), device(cpu_offload=True)),
            (("--force-ddp",), device(force_ddp=True)),
            (("--force-fsdp",), device(force_fsdp=True)),
            (
                ("--single-device",),
                device(dp_shard=1, dp_replicate=1, tensor_parallel=1),
            ),
            (("--grad-accum-steps", "4"), training(gradient_accumulation_steps=4)),
            (("--grad-accum-steps=4",), training(gradient_accumulation_steps=4)),
            (("--no-sanity",), training(num_sanity_val_steps=0)),
            (("--no-checks",), training(startup_checks=False)),
            (("--no-log",), {"logging_parameters": {"enabled": False}}),
            (
                ("--no-compile", "--ckpt-acts", "--no-sanity"),
                device(compile_model=False, checkpoint_activations=True)
                | training(num_sanity_val_steps=0),
            ),
        ],
    )
    def test_effect(
        self, arguments: tuple[str, ...], changes: dict[str, dict[str, Any]], call: Call
    ) -> None:
        def copy() -> Config:
            return dataclasses.replace(ODD)

        expected = copy()
        for name, values in changes.items():
            changed = dataclasses.replace(getattr(expected, name), **values)
            setattr(expected, name, changed)
        result = call(copy, *arguments)
        assert result.ran == [expected], result.err

    def test_all_of_the_description(self) -> None:
        described = {
            "--no-compile",
            "--no-log",
            "--no-sanity",
            "--ckpt-acts",
            "--cpu-offload",
            "--single-device",
            "--force-ddp",
            "--force-fsdp",
            "--grad-accum-steps",
        }
        assert described <= set(MODIFIERS)

    def test_single_device_undoes_a_force(self, call: Call) -> None:
        forced = Config(device_parameters=D.FSDP(force_ddp=True))
        parameters = call(forced, "--single-device").ran[0].device_parameters
        assert parameters == D.SINGLE_DEVICE()

    def test_no_compile_takes_async_tensor_parallel_along_and_says_so(self, call: Call) -> None:
        made = Config(device_parameters=D.FSDP(tensor_parallel=2, async_tensor_parallel=True))
        result = call(made, "--no-compile")
        assert result.out == "--no-compile: async tensor parallelism is off as well\n"
        assert not result.ran[0].device_parameters.async_tensor_parallel
        assert call(fsdp, "--no-compile").out == ""

    @pytest.mark.parametrize(
        "arguments", [("--force-ddp", "--force-fsdp"), ("--force-fsdp", "--force-ddp")]
    )
    def test_forces_contradict(self, arguments: tuple[str, ...], call: Call) -> None:
        result = call(fsdp, *arguments)
        assert result.code != 0 and result.ran == []
        assert "contradict" in result.err

    @pytest.mark.parametrize("value", ["0", "-1"])
    def test_a_value_that_cannot_be(self, value: str, call: Call) -> None:
        result = call(debug, "--grad-accum-steps", value)
        assert result.code == 1 and result.ran == []
        assert result.err.startswith(
            f"error: gradient_accumulation_steps={value} is not possible. "
            "Use a whole number from 1. [DT114]"
        )


class TestRegister:
    def test_effect_and_help(self, call: Call) -> None:
        @register_modifier("--batch-size", type=int)
        def batch_size(config: Config, value: int) -> None:
            """Samples in a batch."""
            config.batch_size = value

        @register_modifier("--tiny", help="A tiny run.")
        def tiny(config: Config, value: bool) -> None:
            config.experiment = f"tiny {value}"

        result = call(debug, "--batch-size", "3", "--tiny")
        assert (result.ran[0].batch_size, result.ran[0].experiment) == (3, "tiny True")
        assert call(debug).ran[0].batch_size == 8
        shown = call(debug, "--help").out
        assert "Samples in a batch." in shown and "A tiny run." in shown

    @pytest.mark.parametrize(
        ("kind", "text", "value"), [(int, "0", 0), (float, "0.0", 0.0), (str, "", "")]
    )
    def test_values_that_are_false(self, kind: type, text: str, value: Any, call: Call) -> None:
        seen: list[Any] = []

        @register_modifier("--value", type=kind)
        def modify(config: Config, value: Any) -> None:
            seen.append(value)

        call(debug)
        assert seen == []
        call(debug, f"--value={text}")
        assert seen == [value]

    def test_type_and_class_come_from_the_annotations(self, call: Call) -> None:
        @register_modifier("--rate")
        def rate(config: Config, value: float) -> None:
            config.learning_rate = value

        assert call(debug, "--rate", "0.25").ran[0].learning_rate == 0.25
        assert call(debug, "--rate", "much").code == 2

        @dataclasses.dataclass(kw_only=True)
        class Derived(Config):
            pass

        assert call(Derived, "--rate", "0.5").ran[0].learning_rate == 0.5
        other = call(DreamTrainerConfig, "--rate", "0.5")
        assert (other.code, other.ran) == (1, [])
        told = "--rate changes Config, but the configuration is DreamTrainerConfig."
        assert told in " ".join(other.err.split())

    def test_the_nearest_class_counts(self, call: Call) -> None:
        @dataclasses.dataclass(kw_only=True)
        class Derived(Config):
            pass

        @register_modifier("--small")
        def small(config: Config, _: bool) -> None:
            config.batch_size = 1

        @register_modifier("--small", config=Derived)
        def smaller(config: Any, _: bool) -> None:
            config.batch_size = 2

        assert call(debug, "--small").ran[0].batch_size == 1
        assert call(Derived, "--small").ran[0].batch_size == 2

    def test_in_the_order_of_registration(self, call: Call) -> None:
        order: list[str] = []
        register_modifier("--first")(lambda config, value: order.append("first"))
        register_modifier("--second")(lambda config, value: order.append("second"))
        call(debug, "--second", "--first")
        assert order == ["first", "second"]

    @pytest.mark.parametrize("flag", ["lr", "-l", "--", "--9lives", "--a b"])
    def test_not_a_flag(self, flag: str) -> None:
        with pytest.raises(ValueError) as caught:
            register_modifier(flag)
        assert str(caught.value) == f"{flag!r} is not a long option. Write it as --some-name."

    def test_of_a_user_script(self, tmp_path: Path) -> None:
        script = tmp_path / "train.py"
        script.write_text(
            inspect.cleandoc("""
                '''My training script.

                More.
                '''
                from dataclasses import dataclass
                from dream_trainer.configs import DreamTrainerConfig
                from dream_trainer.utils.cli import cli
                from dream_trainer.utils.modifiers import register_modifier

                @dataclass(kw_only=True)
                class Config(DreamTrainerConfig):
                    lr: float = 0.5

                @register_modifier("--lr", type=float, help="learning rate")
                def learning_rate(config, value):
                    config.lr = value

                def main(config):
                    print("lr", config.lr)

                def parses():
                    import json
                    return json.loads("{")

                cli(main, {"good": Config, "parses": parses})
            """)
        )

        def run(*arguments: str) -> Any:
            return run_bounded([sys.executable, str(script), *arguments], cwd=tmp_path, timeout=60)

        done = run("--lr", "2")
        assert (done.returncode, done.stdout) == (0, "lr 2.0\n"), done.stderr
        shown = run("--help").stdout
        assert "train.py: My training script." in shown and "learning rate" in shown
        done = run("--config", "parses")
        line = script.read_text().splitlines().index('    return json.loads("{")') + 1
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.endswith(f"\n  --> {script}:{line}, in parses\n")


class TestFailures:
    def test_of_the_configuration(self, call: Call) -> None:
        def wrong() -> Config:
            return Config(device_parameters=D(dp_shard=0))

        result = call(wrong)
        line = inspect.getsourcelines(wrong)[1] + 1
        assert result.code == 1 and result.ran == []
        assert result.err == (
            "error: dp_shard=0 is not a degree of parallelism. "
            'Use a whole number from 1, or "auto". [DT104]\n'
            f"  --> {__file__}:{line}, in wrong\n"
        )

    def test_of_main(self, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
        def main(config: Any) -> None:
            raise ZeroDivisionError("oh")

        monkeypatch.setattr(sys, "argv", ["train.py"])
        with pytest.raises(SystemExit) as ended:
            cli(main, debug)
        assert ended.value.code == 1
        told = capsys.readouterr().err
        assert told.startswith("Traceback") and told.rstrip().endswith("ZeroDivisionError: oh")


class Launching(Callback):
    def __init__(self) -> None:
        self.configs: list[Any] = []

    def pre_launch(self, config: Any) -> None:
        self.configs.append(config)


@pytest.mark.parametrize("accelerators", [0, 4])
def test_callbacks_are_told_before_the_launch(accelerators: int, call: Call) -> None:
    callback = Launching()
    made = Config(device_parameters=D.FSDP(), callbacks=[callback])
    call(made, accelerators=accelerators)
    assert callback.configs == [made]


class TestProcesses:
    @pytest.mark.parametrize(
        ("parameters", "accelerators", "expected"),
        [
            (D.SINGLE_DEVICE(), 8, 1),
            (D.SINGLE_DEVICE(force_fsdp=True), 8, 1),
            (D(), 8, 1),
            (D.DDP(dp_replicate=1), 8, 1),
            (D.FSDP(), 8, 8),
            (D.DDP(), 2, 2),
            (D.FSDP(), 1, 1),
            (D.HSDP(dp_shard=4), 8, 8),
            (D.FSDP(tensor_parallel="auto"), 4, 4),
            (D(tensor_parallel=2), 2, 2),
            (D(dp_shard=4), 8, 8),
            (D.FSDP(force_ddp=True), 8, 8),
        ],
    )
    def test_one_each(
        self, parameters: D, accelerators: int, expected: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(entrypoint, "accelerator_count", lambda: accelerators)
        assert processes(Config(device_parameters=parameters)) == expected

    @pytest.mark.parametrize("parameters", [D.SINGLE_DEVICE(), D.FSDP(), D.DDP()])
    def test_without_accelerator_one_on_the_cpu(
        self, parameters: D, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(entrypoint, "accelerator_count", lambda: 0)
        assert processes(Config(device_parameters=parameters)) <= 1

    def test_under_a_launcher_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(entrypoint, "accelerator_count", lambda: 8)
        monkeypatch.setenv("RANK", "0")
        monkeypatch.setenv("WORLD_SIZE", "8")
        assert processes(Config(device_parameters=D.FSDP())) == 1

    def test_launches_or_runs(self, call: Call) -> None:
        result = call(fsdp, accelerators=4)
        assert (result.launched, result.ran) == ([4], [])
        result = call(debug, accelerators=4)
        assert (result.launched, len(result.ran)) == ([], 1)
        result = call(fsdp, "--single-device", accelerators=4)
        assert (result.launched, len(result.ran)) == ([], 1)
        result = call(fsdp, accelerators=1)
        assert (result.launched, len(result.ran)) == ([], 1)


class TestSet:
    @pytest.mark.parametrize(
        ("assignment", "path", "value"),
        [
            ("batch_size=3", ["batch_size"], 3),
            ("learning_rate=0", ["learning_rate"], 0.0),
            ("learning_rate=1e-3", ["learning_rate"], 1e-3),
            ("experiment=night", ["experiment"], "night"),
            ("experiment=7", ["experiment"], "7"),
            ("experiment=None", ["experiment"], None),
            ("experiment=a=b", ["experiment"], "a=b"),
            ("device_parameters.dp_shard=auto", ["device_parameters", "dp_shard"], "auto"),
            (
                "device_parameters.compile_model=False",
                ["device_parameters", "compile_model"],
                False,
            ),
            (
                "device_parameters.compile_model=false",
                ["device_parameters", "compile_model"],
                False,
            ),
            (
                "device_parameters.param_dtype=float32",
                ["device_parameters", "param_dtype"],
                "float32",
            ),
            (
                "device_parameters.comm.init_timeout_seconds=9",
                ["device_parameters", "comm", "init_timeout_seconds"],
                9,
            ),
            (
                "training_parameters.n_epochs=inf",
                ["training_parameters", "n_epochs"],
                float("inf"),
            ),
            (
                "training_parameters.gradient_clip_val=1",
                ["training_parameters", "gradient_clip_val"],
                1,
            ),
        ],
    )
    def test_effect(self, assignment: str, path: list[str], value: Any, call: Call) -> None:
        result = call(debug, "--set", assignment)
        assert result.code == 0, result.err
        found = result.ran[0]
        for name in path:
            found = getattr(found, name)
        assert (found == value and type(found) is type(value)) or found == value == 1

    def test_several(self, call: Call) -> None:
        made = call(
            debug, "--set", "batch_size=1", "--set", "batch_size=2", "--set", "seed=5"
        ).ran[0]
        assert (made.batch_size, made.seed) == (2, 5)

    @pytest.mark.parametrize(
        ("assignment", "text"),
        [
            (
                "batch_size",
                "--set batch_size has no value. Write --set path.to.field=value. [DT107]",
            ),
            (
                "batchsize=3",
                "--set batchsize: Config has no field 'batchsize'. "
                "Did you mean batch_size? [DT107]",
            ),
            (
                "device_parameters.dp_shards=3",
                "--set device_parameters.dp_shards: DeviceParameters has no field 'dp_shards'. "
                "Did you mean dp_shard? [DT107]",
            ),
            (
                "batch_size=many",
                "--set batch_size=many is not of type int. Give such a value. [DT107]",
            ),
            (
                "batch_size=2.5",
                "--set batch_size=2.5 is not of type int. Give such a value. [DT107]",
            ),
            (
                "device_parameters.dp_shard=0",
                "dp_shard=0 is not a degree of parallelism. "
                'Use a whole number from 1, or "auto". [DT104]',
            ),
        ],
    )
    def test_refused(self, assignment: str, text: str, call: Call) -> None:
        result = call(debug, "--set", assignment)
        assert result.code == 1 and result.ran == []
        assert result.err.splitlines()[0] == f"error: {text}"


HEAVY = (
    "torch.distributed.tensor",
    "torch.distributed.fsdp",
    "torch.distributed.checkpoint",
    "torch.distributed.pipelining",
    "torch._dynamo",
    "torch.utils.tensorboard",
    "torchmetrics",
    "wandb",
    "rich.table",
    "rich.progress",
    "fsspec",
    "dream_trainer.lifecycle",
    "dream_trainer.loop",
    "dream_trainer.checkpoint",
    "dream_trainer.simulate",
)


@pytest.mark.parametrize("arguments", [["checkpoints"], ["summarize"], ["report", "run"]])
def test_a_command_refuses_as_training_does(call: Call, arguments: list[str]) -> None:
    def wrong() -> Config:
        return Config(training_parameters=TrainingParameters(max_steps=0))

    expected = call(wrong)
    result = call(wrong, *arguments)
    assert (result.code, result.err) == (expected.code, expected.err) == (1, expected.err)
    assert "max_steps=0 is not possible." in result.err and "in wrong" in result.err


def test_nothing_heavy_is_imported_before_a_run() -> None:
    text = (
        "import sys; import dream_trainer.utils.cli; from dream_trainer import DreamTrainer; "
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = run_bounded([sys.executable, "-c", text], cwd=RUNTIME, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stdout + done.stderr


def test_completion(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from dream_trainer.configs import DreamTrainerConfig\n"
        "from dream_trainer.utils.cli import cli\n"
        "def main(config): raise SystemExit('it trained')\n"
        "cli(main, DreamTrainerConfig)\n"
    )
    for begun, expected in (
        ("--no-c", {"--no-compile", "--no-ckpt", "--no-checks"}),
        ("ver", {"verify"}),
    ):
        variables = {
            "_TRAIN.PY_COMPLETE": "complete_bash",
            "COMP_WORDS": f"train.py {begun}",
            "COMP_CWORD": "1",
            "PYTHONPATH": str(RUNTIME),
        }
        done = run_bounded([sys.executable, str(script)], cwd=tmp_path, timeout=60, env=variables)
        assert expected <= set(done.stdout.split()), done.stdout + done.stderr
