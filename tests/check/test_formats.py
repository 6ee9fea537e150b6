"""Each output format, whole."""

import json
from collections.abc import Callable

import pytest

from dream_scaffold.check import Result
from dream_scaffold.check.report import render

Check = Callable[..., Result]

TEXT = """
from dream_trainer import DreamTrainer

from config import fsdp_config


class T(DreamTrainer):
    def configure_models(self): ...
    def configure_optimizers(self): return {}
    def configure_dataloaders(self): return [], []
    def training_step(self, batch, batch_idx): return {}
    def validaton_step(self, batch, batch_idx): return {}


T(fsdp_config()).fit()
--- config.py
from dream_trainer import DreamTrainerConfig
from dream_trainer.configs import DeviceParameters


def fsdp_config():
    return DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(),
    )
"""


@pytest.fixture
def rendered(project: Check) -> Callable[..., str]:
    def render_text(output_format: str | None, text: str = TEXT, **options: object) -> str:
        return render(project(text, prelude=False, output_format=output_format, **options))

    return render_text


def test_full(rendered: Callable[..., str]) -> None:
    assert (
        rendered(None)
        == """\
error[DT201]: compile_model=True calls apply_compile(), which T does not define.
 --> train.py:6:7
  |
6 | class T(DreamTrainer):
  |       ^
 ::: config.py:7:27
  |
7 |         device_parameters=DeviceParameters.FSDP(),
  |                           ----------------------- fsdp_config leaves compile_model=True, \
the default
  |
  = help: Define it, or set compile_model=False.
  = in: fsdp_config

error[DT201]: dp_shard="auto" calls apply_fully_shard(config), which T does not define.
 --> train.py:6:7
  |
6 | class T(DreamTrainer):
  |       ^
 ::: config.py:7:27
  |
7 |         device_parameters=DeviceParameters.FSDP(),
  |                           ----------------------- fsdp_config sets dp_shard="auto"
  |
  = help: Define it, or set dp_shard=1.
  = in: fsdp_config

error[DT202]: Every run calls configure_models(), which is still a stub.
 --> train.py:7:9
  |
7 |     def configure_models(self): ...
  |         ^^^^^^^^^^^^^^^^
  |
  = help: Write it: assign the models; runs on the meta device.

warning[DT205]: Nothing calls T.validaton_step, which looks like validation_step.
  --> train.py:11:9
   |
11 |     def validaton_step(self, batch, batch_idx): return {}
   |         ^^^^^^^^^^^^^^
   |
   = help: Rename it to validation_step.

Found 3 errors, 1 warning."""
    )


def test_concise(rendered: Callable[..., str]) -> None:
    assert (
        rendered("concise")
        == """\
train.py:6:7: error: DT201 compile_model=True calls apply_compile(), which T does not define. \
[fsdp_config]
train.py:6:7: error: DT201 dp_shard="auto" calls apply_fully_shard(config), which T does not \
define. [fsdp_config]
train.py:7:9: error: DT202 Every run calls configure_models(), which is still a stub.
train.py:11:9: warning: DT205 Nothing calls T.validaton_step, which looks like validation_step.
Found 3 errors, 1 warning."""
    )


def test_github(rendered: Callable[..., str]) -> None:
    assert (
        rendered("github", select=("DT205", "DT202"))
        == """\
::error file=train.py,line=7,col=9,endLine=7,endColumn=25,title=DT202 stub-hook::Every run calls \
configure_models(), which is still a stub. Write it: assign the models; runs on the meta device.
::warning file=train.py,line=11,col=9,endLine=11,endColumn=23,title=DT205 misspelt-hook::Nothing \
calls T.validaton_step, which looks like validation_step. Rename it to validation_step."""
    )


def test_json(rendered: Callable[..., str]) -> None:
    report = json.loads(rendered("json", select=("DT201",)))
    assert list(report) == ["version", "configs", "findings", "summary"]
    assert report["version"] == 1
    assert report["summary"] == {"error": 2, "warning": 0, "info": 0}
    assert report["findings"][1] == {
        "code": "DT201",
        "name": "missing-hook",
        "severity": "error",
        "message": 'dp_shard="auto" calls apply_fully_shard(config), which T does not define.',
        "help": "Define it, or set dp_shard=1.",
        "path": "train.py",
        "line": 6,
        "column": 7,
        "end_line": 6,
        "end_column": 8,
        "config": "fsdp_config",
        "fix": None,
    }
    (config,) = report["configs"]
    assert config == {
        "name": "fsdp_config",
        "path": "config.py",
        "line": 5,
        "trainer": "T",
        "axes": {"pp": 1, "dp_replicate": 1, "dp_shard": "auto", "cp": 1, "tp": 1},
        "features": config["features"],
        "hooks": {
            "configure_models": "required",
            "apply_pipeline_parallel": "unused",
            "apply_tensor_parallel": "unused",
            "apply_activation_checkpointing": "unused",
            "apply_compile": "required",
            "apply_fully_shard": "required",
            "apply_replicate": "unused",
            "configure_optimizers": "required",
            "configure_dataloaders": "required",
            "context_parallel_buffers": "unused",
            "training_step": "required",
        },
    }
    assert config["features"] == {
        "allow_low_precision_params": False,
        "compile_model": True,
        "compiled_autograd": False,
        "checkpoint_activations": False,
        "cpu_offload": False,
        "async_tensor_parallel": None,
        "loss_parallel": False,
        "force_ddp": False,
        "force_fsdp": False,
        "error_if_nonfinite": False,
    }


def test_statistics(rendered: Callable[..., str]) -> None:
    assert (
        rendered("concise", statistics=True)
        == """\
    2  DT201  missing-hook
    1  DT202  stub-hook
    1  DT205  misspelt-hook
Found 3 errors, 1 warning."""
    )


def test_nothing_found(rendered: Callable[..., str]) -> None:
    assert rendered(None, ignore=("DT2",)) == "All checks passed: 1 trainer, 1 configuration."
    assert rendered("github", ignore=("DT2",)) == ""


def test_verbose_tells_every_configuration(rendered: Callable[..., str]) -> None:
    assert (
        rendered(None, ignore=("DT2",), verbose=True, world_size=8)
        == """\
fsdp_config (config.py:5) for T: dp_shard=8; calls apply_compile, apply_fully_shard.
All checks passed: 1 trainer, 1 configuration."""
    )


def test_infos_alone_pass(rendered: Callable[..., str]) -> None:
    text = TEXT.replace("FSDP()", "SINGLE_DEVICE(compile_model=False)")
    text = text.replace("def validaton_step(self, batch, batch_idx)", "def apply_compile(self)")
    assert (
        rendered("concise", text, ignore=("DT202",))
        == """\
train.py:11:9: info: DT203 No configuration calls apply_compile() of T.
All checks passed (1 info): 1 trainer, 1 configuration."""
    )


def test_columns_count_characters_and_tabs_keep_the_frame(rendered: Callable[..., str]) -> None:
    text = (
        "from dream_trainer import DreamTrainerConfig, DreamTrainer\n"
        "from dream_trainer.configs import DeviceParameters\n"
        "class T(DreamTrainer):\n\tname = 'é→'; config = DreamTrainerConfig(seeds=1)\n"
    )
    assert (
        rendered(None, text, select=("DT107",))
        == """\
error[DT107]: DreamTrainerConfig has no field seeds.
 --> train.py:4:43
  |
4 |     name = 'é→'; config = DreamTrainerConfig(seeds=1)
  |                                              ^^^^^^^
  |
  = help: Write seed.

Found 1 error."""
    )


def test_colours_only_on_a_terminal(
    rendered: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert rendered(None).startswith("\x1b[1;31merror[DT201]\x1b[0m: \x1b[1mcompile_model=True")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in rendered(None)
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in rendered(None)
