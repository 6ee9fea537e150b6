"""The code samples and commands of the framework's description run as they are written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RUNTIME = HERE.parents[1] / "runtime"
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(RUNTIME)}

CONFIG = """
# config.py
from dataclasses import dataclass

from dream_trainer import DreamTrainerConfig
from dream_trainer.configs import DeviceParameters, TrainingParameters


@dataclass(kw_only=True)
class MyTrainerConfig(DreamTrainerConfig):
    batch_size: int = 8
    learning_rate: float = 1e-4


def debug_config() -> MyTrainerConfig:
    return MyTrainerConfig(
        device_parameters=DeviceParameters.SINGLE_DEVICE(compile_model=False),
        training_parameters=TrainingParameters(train_steps_per_epoch=10),
    )


def fsdp_config() -> MyTrainerConfig:
    return MyTrainerConfig(
        device_parameters=DeviceParameters.FSDP(compile_model=True),
        training_parameters=TrainingParameters(train_steps_per_epoch=1000),
    )
"""

# The sample imports no DreamTrainer and writes its hooks as `...`: the first line and the
# last methods are ours.
TRAIN = """
from dream_trainer import DreamTrainer

# train.py
from dream_trainer.utils.cli import cli

from config import MyTrainerConfig, debug_config


class MyTrainer(DreamTrainer):
    ...


def main(config: MyTrainerConfig) -> None:
    MyTrainer(config).fit()


if __name__ == "__main__":
    cli(main, debug_config())
"""

HOOKS = """
    def configure_models(self):
        self.model = torch.nn.Linear(4, 2)

    def configure_optimizers(self):
        self.optimizer = torch.optim.AdamW(self.model.parameters(), self.config.learning_rate)
        return {self.model: self.optimizer}

    def configure_dataloaders(self):
        return [torch.ones(self.config.batch_size, 4)] * 20, None

    def training_step(self, batch, batch_idx):
        loss = self.model(batch).square().mean()
        self.backward(loss)
        return {"train/loss": loss, "train/grad_norm": self.step(self.optimizer)}

    def apply_compile(self):
        self.model.compile(backend="eager")
"""


def python(
    *arguments: str | Path, cwd: Path, timeout: int = 60
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The description's two files, with hooks where it writes `...`."""
    (tmp_path / "config.py").write_text(CONFIG)
    (tmp_path / "train.py").write_text("import torch\n" + TRAIN.replace("\n    ...\n", HOOKS))
    return tmp_path


def test_samples_train_on_two_ranks(tmp_path: Path) -> None:
    names = ("imports", "fsdp", "state_dict", "quick", "ddp")
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    script = HERE / "framework_samples.py"
    done = python(*launcher, script, *names, cwd=tmp_path, timeout=280)
    assert done.returncode == 0, done.stderr
    lines = [line.partition(":")[0] for line in done.stdout.splitlines() if ", loss " in line]
    assert lines == ["fsdp", "state_dict", "quick", "ddp"]


def test_two_file_layout_as_written_names_every_hook_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "config.py").write_text(CONFIG)
    (tmp_path / "train.py").write_text(TRAIN)
    done = python("train.py", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "error: Every run calls configure_models(), which MyTrainer does not define. "
        "Define it: assign the models; runs on the meta device. [DT206]",
        "error: Every run calls configure_optimizers(), which MyTrainer does not define. "
        "Define it: return {model: optimizer}. [DT206]",
        "error: Every run calls configure_dataloaders(), which MyTrainer does not define. "
        "Define it: return the train and validation iterables. [DT206]",
        "error: Every run calls training_step(batch, batch_idx), which MyTrainer does not define. "
        "Define it: forward, backward, step; return values to log. [DT206]",
        f"  --> {tmp_path}/train.py:10, class MyTrainer",
    ]


def test_two_file_layout_trains(project: Path) -> None:
    done = python("train.py", cwd=project)
    assert done.returncode == 0, done.stderr
    assert "step 10/10" in done.stdout


def test_help_names_the_modifiers(project: Path) -> None:
    done = python("train.py", "--help", cwd=project)
    assert done.returncode == 0
    for flag in (
        "--cfg",
        "--no-compile",
        "--no-log",
        "--no-sanity",
        "--ckpt-acts",
        "--cpu-offload",
        "--single-device",
        "--force-ddp",
        "--force-fsdp",
        "--grad-accum-steps",
    ):
        assert flag in done.stdout


def test_cfg_prints_and_does_not_train(project: Path) -> None:
    done = python("train.py", "--cfg", "--grad-accum-steps", "4", cwd=project)
    assert done.returncode == 0
    changed = "        gradient_accumulation_steps=4,  # --grad-accum-steps"
    assert changed in done.stdout.splitlines()
    assert "step" not in done.stdout.splitlines()[-1]
    assert not (project / "runs").exists()


def test_no_compile(project: Path) -> None:
    script = project / "train.py"
    script.write_text(script.read_text().replace("debug_config())", "fsdp_config())"))
    script.write_text(script.read_text().replace(", debug_config", ", fsdp_config"))
    compiled = python("train.py", "--cfg", cwd=project)
    plain = python("train.py", "--cfg", "--no-compile", cwd=project)
    assert "        compile_model=True," in compiled.stdout.splitlines()
    assert "        compile_model=False,  # --no-compile" in plain.stdout.splitlines()
