"""Projects as people lay them out: those of the framework's documents, and larger ones."""

from collections.abc import Callable
from textwrap import dedent

from small_projects import codes, hooks

from dream_scaffold.check import Options, Result, check

Check = Callable[..., Result]

TRAINER = """
import torch
import torch.nn.functional as F
from dream_trainer import DreamTrainer

class MyTrainer(DreamTrainer):
    def configure_models(self):
        self.model = MyModel(self.config.model)

    def configure_optimizers(self):
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.config.lr)
        return {self.model: self.optimizer}

    def configure_dataloaders(self):
        return [], []

    def training_step(self, batch, batch_idx):
        loss = F.cross_entropy(self.model(batch["input"]), batch["target"])
        self.backward(loss)
        return {"train/loss": loss, "train/grad_norm": self.step(self.optimizer)}
"""

TWO_FILES = (
    TRAINER
    + """
from dream_trainer.utils.cli import cli
from config import MyTrainerConfig, debug_config

def main(config: MyTrainerConfig) -> None:
    MyTrainer(config).fit()

if __name__ == "__main__":
    cli(main, debug_config())
--- config.py
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
)


def test_the_minimal_layout(project: Check) -> None:
    result = project(TWO_FILES, prelude=False)
    assert [(f.code, f.configs) for f in result.findings] == [
        ("DT201", ("fsdp_config",)),
        ("DT201", ("fsdp_config",)),
    ]
    assert hooks(result, "debug_config") == {}


def test_tensor_parallel_example(project: Check) -> None:
    result = project(
        TRAINER
        + """
from torch.distributed.tensor.parallel import parallelize_module
from dream_trainer import DreamTrainerConfig
from dream_trainer.configs import DeviceParameters

config = DreamTrainerConfig(
    device_parameters=DeviceParameters.FSDP(
        tensor_parallel="auto",
        compile_model=True,
        async_tensor_parallel=True,
    ),
)
my_tp_plan = {}

class Wide(MyTrainer):
    def apply_tensor_parallel(self, tp_mesh):
        parallelize_module(self.model, tp_mesh, plan=my_tp_plan)
""",
        prelude=False,
    )
    assert [trainer.name for trainer in result.project.trainers] == ["Wide"]
    assert hooks(result, "config") == dict.fromkeys(
        ("apply_tensor_parallel", "apply_compile", "apply_fully_shard"), "required"
    )
    assert codes(result) == ["DT201", "DT201"]


def test_cli_with_a_class_of_defaults(project: Check) -> None:
    text = TWO_FILES.replace("cli(main, debug_config())", "cli(main, MyTrainerConfig())")
    result = project(text, prelude=False)
    assert hooks(result, "MyTrainerConfig") == {}
    assert codes(result, "error") == ["DT201", "DT201"]


def test_entrypoint_with_argparse(project: Check) -> None:
    result = project(
        TRAINER
        + """
import argparse
import logging

from dream_trainer.utils.entrypoint import entrypoint
import config

logger = logging.getLogger(__name__)
CONFIGS = {"debug": config.debug_config, "fsdp": config.fsdp_config}

@entrypoint
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default="debug")
    arguments = parser.parse_args()
    chosen = CONFIGS[arguments.config]()
    logger.info("training %s", chosen)
    MyTrainer(chosen).fit()

if __name__ == "__main__":
    main()
"""
        + TWO_FILES[TWO_FILES.index("--- config.py") :],
        prelude=False,
        verbose=True,
    )
    assert hooks(result, "fsdp_config")["apply_fully_shard"] == "required"
    assert codes(result, "error") == ["DT201", "DT201"]


def test_one_file_per_experiment_in_a_package(project: Check) -> None:
    text = (
        "--- pyproject.toml\n[project]\nname = 'lab'\n"
        "--- src/lab/__init__.py\n"
        "--- src/lab/trainer.py\n"
        + TRAINER
        + "--- src/lab/config.py\n"
        + TWO_FILES[TWO_FILES.index("--- config.py") + len("--- config.py\n") :]
        + """
--- scripts/wide.py
from lab.config import fsdp_config
from lab.trainer import MyTrainer
MyTrainer(fsdp_config()).fit()
--- scripts/small.py
from dataclasses import replace
from lab.config import fsdp_config
from lab.trainer import MyTrainer
from dream_trainer.configs import DeviceParameters
MyTrainer(replace(fsdp_config(), device_parameters=DeviceParameters(compile_model=False))).fit()
"""
    )
    project("from dream_trainer import DreamTrainer\nclass A(DreamTrainer): ...\n" + text)
    assert codes(check(Options(paths=("scripts/wide.py",)))) == ["DT201", "DT201"]
    small = check(Options(paths=("scripts/small.py",), verbose=True))
    launched = small.project.trainers[0].configs[0]
    assert launched.hooks["apply_fully_shard"] == "unused"
    assert codes(check(Options(paths=("src",))), "error") == []


def test_main_changes_every_configuration_that_reaches_it(project: Check) -> None:
    text = TWO_FILES.replace(
        "    MyTrainer(config).fit()",
        "    config.device_parameters.compile_model = False\n    MyTrainer(config).fit()",
    )
    assert hooks(project(text, prelude=False), "fsdp_config") == {"apply_fully_shard": "required"}


def test_configurations_in_a_table(project: Check) -> None:
    result = project(
        TWO_FILES.replace(
            "cli(main, debug_config())",
            'cli(main, {"one": lambda: MyTrainerConfig(), "two": MyTrainerConfig(seed=2)})',
        ),
        prelude=False,
    )
    names = [config.name for config in result.project.trainers[0].configs]
    assert names[:2] == ["one", "two"]


def test_parameters_of_a_class_of_ones_own(project: Check) -> None:
    result = project(
        TRAINER
        + """
from dataclasses import dataclass
from dream_trainer import DreamTrainerConfig
from dream_trainer.configs import DeviceParameters

@dataclass(kw_only=True)
class Device(DeviceParameters):
    compile_model: bool = False
    nodes: int = 1

wide = DreamTrainerConfig(device_parameters=Device.FSDP(nodes=2))
wrong = DreamTrainerConfig(device_parameters=Device(dp_shard=0))
""",
        prelude=False,
    )
    assert hooks(result, "wide") == {"apply_fully_shard": "required"}
    assert codes(result) == ["DT201", "DT104"]


def test_logging_leaves_a_configuration_alone(project: Check) -> None:
    result = project(
        "import logging, json\nfrom dataclasses import asdict\n\nlog = logging.getLogger('x')\n\n"
        "def c():\n    config = DreamTrainerConfig()\n    log.info('%s', config)\n"
        "    print(json.dumps(asdict(config)), config)\n    return config\n"
    )
    assert hooks(result, "c") == {}


def test_two_scripts_that_change_the_same_configuration(project: Check) -> None:
    text = (
        "from config import c\n\nif __name__ == '__main__':\n    config = c()\n"
        "    config.device_parameters.compile_model = False\n    Complete(config).fit()\n"
        "--- config.py\nfrom dream_trainer import DreamTrainerConfig\n"
        "from dream_trainer.configs import DeviceParameters\n\n"
        "def c():\n    return DreamTrainerConfig(device_parameters=DeviceParameters())\n"
        "--- other.py\nfrom train import Complete\nfrom config import c\n\nComplete(c()).fit()\n"
    )
    assert codes(project(text)) == []
    assert codes(project(text, paths=())) == ["DT201"]


def test_what_is_only_told_does_not_branch(project: Check) -> None:
    guards = "".join(
        f"    if os.environ.get('X{i}'):\n        wandb.init(project='x', tags=[{i}])\n"
        for i in range(12)
    )
    text = (
        "import os\nimport wandb\n\ndef main(config):\n"
        f"{guards}    Complete(config).fit()\n\n"
        "def c():\n    return DreamTrainerConfig(device_parameters=DeviceParameters())\n\n"
        'if __name__ == "__main__":\n    cli(main, c())\n'
    )
    assert codes(project(text), "error") == ["DT201"]


def test_too_many_branches_make_nothing_certain(project: Check) -> None:
    guards = "".join(
        f"    if os.environ.get('X{i}'):\n        config.seed = {i}\n" for i in range(12)
    )
    text = (
        "import os\n\ndef main(config):\n"
        f"{guards}    Complete(config).fit()\n\n"
        "def c():\n    return DreamTrainerConfig(device_parameters=DeviceParameters())\n\n"
        'if __name__ == "__main__":\n    cli(main, c())\n'
    )
    assert codes(project(text), "error") == []


def test_a_main_that_raises_keeps_its_configuration(project: Check) -> None:
    text = TWO_FILES.replace(
        "    MyTrainer(config).fit()", "    MyTrainer(config).fit()\n    raise SystemExit(0)"
    )
    assert codes(project(text, prelude=False)) == ["DT201", "DT201"]


def test_each_choice_of_a_script_is_certain_in_itself(project: Check) -> None:
    text = TWO_FILES.replace("    cli(main, debug_config())", "    main(chosen)").replace(
        'if __name__ == "__main__":',
        "import sys\nfrom config import fsdp_config\n\n"
        'if sys.argv[1] == "fsdp":\n    chosen = fsdp_config()\n'
        "else:\n    chosen = debug_config()\n"
        'if __name__ == "__main__":',
    )
    result = project(text, prelude=False)
    assert codes(result, "error") == ["DT201", "DT201"]
    assert hooks(result, "debug_config") == {}


def test_names_of_the_runtime_by_every_path(project: Check) -> None:
    result = project(
        """
import dream_trainer as dt
from dream_trainer.configs import *
from dream_trainer.configs.device import DeviceParameters as Device

class T(dt.DreamTrainer):
    config: "dt.DreamTrainerConfig"
    configure_models = configure_optimizers = training_step = lambda self, *args: {}

    def configure_dataloaders(self):
        return [], []

a = dt.DreamTrainerConfig(device_parameters=dt.configs.DeviceParameters.FSDP())
b = dt.DreamTrainerConfig(device_parameters=Device.FSDP())
c = dt.DreamTrainerConfig(device_parameters=DeviceParameters.FSDP())
""",
        prelude=False,
    )
    both = dict.fromkeys(("apply_compile", "apply_fully_shard"), "required")
    assert [hooks(result, name) for name in "abc"] == [both] * 3
    assert codes(result) == ["DT201"] * 2


def test_a_class_that_foreign_code_may_change_takes_any_keyword(project: Check) -> None:
    result = project(
        "import attrs\nfrom lab import Mixin\n\n"
        "@attrs.define\nclass A(DreamTrainerConfig):\n    lr: float = 1.0\n\n"
        "@dataclass(kw_only=True)\nclass B(Mixin, DreamTrainerConfig):\n    lr: float = 1.0\n\n"
        "def a():\n    return A(lr=2.0, device_parameters=DeviceParameters.FSDP())\n\n"
        "def b():\n    return B(other=2.0, device_parameters=DeviceParameters.FSDP())\n"
    )
    both = dict.fromkeys(("apply_compile", "apply_fully_shard"), "required")
    assert hooks(result, "a") == hooks(result, "b") == both
    assert codes(result) == ["DT201", "DT201"]


UPSTREAMS = """
    def config_a():
        return DreamTrainerConfig(
            device_parameters=DeviceParameters(_tensor_parallel=2, compile_model=False),
            checkpoint_parameters=CheckpointParameters(strict_load=False),
        )

    Complete(config_a()).fit()
"""


def test_the_fields_of_upstreams_package_are_no_fault_where_it_may_be_installed(
    project: Check,
) -> None:
    result = project(UPSTREAMS, verbose=True)
    assert [f for f in result.findings if f.severity == "error"] == []
    assert any("a field of upstream's own package" in f.message for f in result.findings)


def test_beside_a_runtime_of_ours_they_are(project: Check) -> None:
    runtime = (
        '--- dream_trainer/__init__.py\n__version__ = "0.1.0"\n'
        "--- dream_trainer/contract.py\nHOOKS = ()\n--- dream_trainer/configs/__init__.py\n"
    )
    result = project(dedent(UPSTREAMS) + runtime)
    assert [f.message for f in result.findings if f.code == "DT107"] == [
        "DeviceParameters has no field _tensor_parallel.",
        "CheckpointParameters has no field strict_load.",
    ]
