"""Which classes are trainers, which hooks they have, which configurations reach them."""

from collections.abc import Callable
from pathlib import Path

import pytest
from small_projects import codes, hooks, sections

from dream_scaffold.check import Options, Result, check
from dream_scaffold.errors import DreamError

Check = Callable[..., Result]

COMPILED = "config = DreamTrainerConfig(device_parameters=DeviceParameters())\n"
"""Asks for `apply_compile`, and for nothing else."""

PROVIDED = sections(
    """
# -- method
class T(Complete):
    def apply_compile(self):
        self.model.compile()

# -- async method
class T(Complete):
    async def apply_compile(self):
        return work(self)

# -- base class
class B(Complete):
    def apply_compile(self):
        return work(self)

class T(B):
    pass

# -- mixin
class M:
    def apply_compile(self):
        return work(self)

class T(M, Complete):
    pass

# -- mixin of another module
from mixins import M

class T(M, Complete):
    pass
--- mixins.py
class M:
    def apply_compile(self):
        return work(self)

# -- attribute of a module
import mixins

class T(mixins.M, Complete):
    pass
--- mixins.py
class M:
    def apply_compile(self):
        return work(self)

# -- assignment
def compile_blocks(self):
    return work(self)

class T(Complete):
    apply_compile = compile_blocks

# -- assignment of an import
from hooks import compile_blocks

class T(Complete):
    apply_compile = compile_blocks
--- hooks.py
def compile_blocks(trainer):
    return work(self)

# -- assignment of a foreign name
from installed import compile_blocks

class T(Complete):
    apply_compile = compile_blocks

# -- lambda
class T(Complete):
    apply_compile = lambda self: self.model.compile()

# -- assignment from outside
class T(Complete):
    pass

T.apply_compile = lambda self: work(self)

# -- setattr from outside
class T(Complete):
    pass

setattr(T, 'apply_compile', lambda self: work(self))

# -- class decorator
def compiled(cls):
    def apply_compile(self):
        return work(self)
    cls.apply_compile = apply_compile
    return cls

@compiled
class T(Complete):
    pass

# -- decorated
import torch

class T(Complete):
    @torch.no_grad()
    def apply_compile(self):
        return work(self)

# -- decorated by foreign code
from installed import traced

class T(Complete):
    @traced(name='x')
    def apply_compile(self):
        return work(self)

# -- decorated by the project
import functools

def logged(f):
    @functools.wraps(f)
    def inner(*args, **kwargs):
        return f(*args, **kwargs)
    return inner

class T(Complete):
    @logged
    def apply_compile(self):
        return work(self)

# -- conditional
import sys

class T(Complete):
    if sys.platform:
        def apply_compile(self):
            return work(self)
    else:
        def apply_compile(self):
            return 2

# -- generic base
from typing import Generic, TypeVar

X = TypeVar('X')

class B(Complete, Generic[X]):
    def apply_compile(self):
        return work(self)

class T(B[int]):
    pass
"""
)


@pytest.mark.parametrize("text", PROVIDED.values(), ids=PROVIDED)
def test_a_hook_may_be_provided_in_many_ways(project: Check, text: str) -> None:
    before, mark, rest = text.partition("\n--- ")
    result = project(f"{before}\n\n{COMPILED}{mark}{rest}")
    assert [t.name for t in result.project.trainers] == ["T"]
    assert result.findings == ()


OPEN = sections(
    """
# -- foreign mixin
from installed import M

class T(M, Complete):
    pass

# -- foreign class decorator
from installed import d

@d
class T(Complete):
    pass

# -- __getattr__
class T(Complete):
    def __getattr__(self, name):
        return work(self)

# -- unreadable mixin
from broken import M

class T(M, Complete):
    pass
--- broken.py
class M(:
"""
)


@pytest.mark.parametrize("text", OPEN.values(), ids=OPEN)
def test_a_hook_that_may_come_from_elsewhere_is_no_error(project: Check, text: str) -> None:
    before, mark, rest = text.partition("\n--- ")
    result = project(f"{before}\n\n{COMPILED}{mark}{rest}")
    assert [code for code in codes(result, "error") if code != "DT000"] == []
    assert codes(result, "info") == ["DT201"]


def test_the_first_class_in_line_counts(project: Check) -> None:
    result = project(
        "class A(Complete):\n    def apply_compile(self):\n        pass\n\n"
        "class B(Complete):\n    def apply_compile(self):\n        return work(self)\n\n"
        f"class T(A, B):\n    pass\n\n{COMPILED}"
    )
    assert codes(result) == ["DT202"]


def test_bases_are_checked_only_where_they_are_launched(project: Check) -> None:
    text = "class Base(DreamTrainer):\n    pass\n\nclass T(Base, Complete):\n    pass\n"
    assert codes(project(text)) == []
    assert codes(project(text + "Base(DreamTrainerConfig()).fit()"))[:1] == ["DT206"]


def test_a_class_with_abstract_methods_is_checked_only_where_it_is_launched(
    project: Check,
) -> None:
    result = project(
        "from abc import ABC, abstractmethod\n\nclass Base(DreamTrainer, ABC):\n"
        "    @abstractmethod\n    def loss(self): ...\n",
        prelude=True,
    )
    assert "Base" not in [trainer.name for trainer in result.project.trainers]


@pytest.mark.parametrize("name", ["DreamTrainer", "BaseTrainer", "AbstractTrainer"])
@pytest.mark.parametrize("path", ["dream_trainer.trainer", "vendor.dream_trainer.trainer"])
def test_every_public_base_is_known(project: Check, name: str, path: str) -> None:
    result = project(
        f"from {path} import {name}\n\nclass T({name}):\n    pass\n"
        "--- vendor/dream_trainer/contract.py\n--- vendor/dream_trainer/configs/__init__.py\n"
        "--- vendor/dream_trainer/__init__.py\n",
        prelude=False,
    )
    assert codes(result) == ["DT206"] * 4


def test_no_trainer_is_refused(project: Check) -> None:
    with pytest.raises(DreamError) as refusal:
        project("x = 1\n", prelude=False)
    assert str(refusal.value) == (
        "No trainer found in train.py. "
        "Name the file with the class that derives from DreamTrainer."
    )


SHARED = """
from config import debug_config

class T(Complete):
    def apply_fully_shard(self, config):
        return work(self)

def main(config):
    T(config).fit()

if __name__ == "__main__":
    cli(main, debug_config())
--- config.py
from dataclasses import dataclass
from dream_trainer import DreamTrainerConfig
from dream_trainer.configs import DeviceParameters

@dataclass(kw_only=True)
class Config(DreamTrainerConfig):
    lr: float = 1e-3

def debug_config():
    return _make(DeviceParameters.SINGLE_DEVICE(compile_model=False))

def fsdp_config():
    return _make(DeviceParameters.FSDP(compile_model=False))

def ddp_config():
    return _make(DeviceParameters.DDP(compile_model=False))

def _make(device):
    return Config(device_parameters=device)

def _private():
    return _make(DeviceParameters.DDP())

def other(lr):
    return _make(DeviceParameters.DDP())

def unrelated():
    return 4

single = Config(lr=2.0)
"""


def test_every_factory_and_instance_in_reach_is_checked(project: Check) -> None:
    result = project(SHARED)
    (trainer,) = result.project.trainers
    assert [config.name for config in trainer.configs] == [
        "debug_config",
        "fsdp_config",
        "ddp_config",
        "single",
    ]
    (finding,) = result.findings
    assert (finding.code, finding.configs) == ("DT201", ("ddp_config",))
    assert [(note.text, str(note.place)) for note in finding.notes] == [
        ('ddp_config sets dp_replicate="auto"', "config.py:16")
    ]


def test_only_the_named_configuration_is_checked(project: Check) -> None:
    assert project(SHARED, config="fsdp_config").findings == ()
    assert codes(project(SHARED, config="ddp_config")) == ["DT201"]
    with pytest.raises(DreamError) as refusal:
        project(SHARED, config="hsdp_config")
    assert str(refusal.value) == (
        "No configuration is called hsdp_config. "
        "Those found are: debug_config, fsdp_config, ddp_config, single."
    )


RESTRICTED = sections(
    """
# -- annotation of the trainer
class T(Complete):
    config: Mine

# -- quoted annotation
class T(Complete):
    config: "Mine"

# -- annotation of main
class T(Complete):
    pass

def main(config: Mine):
    T(config).fit()

cli(main, mine())

# -- annotation of __init__
class T(Complete):
    def __init__(self, config: Mine):
        super().__init__(config)
"""
)


@pytest.mark.parametrize("text", RESTRICTED.values(), ids=RESTRICTED)
def test_annotations_say_which_configurations_are_meant(project: Check, text: str) -> None:
    result = project(
        "@dataclass(kw_only=True)\nclass Mine(DreamTrainerConfig):\n    lr: float = 1.0\n\n"
        "def mine() -> Mine:\n    return Mine(device_parameters=DeviceParameters(tensor_parallel=1"
        ", compile_model=False))\n\n"
        f"def others():\n    return DreamTrainerConfig(seed=1)\n\n{text}"
    )
    (trainer,) = result.project.trainers
    assert [config.name for config in trainer.configs] == ["mine"]


def test_a_configuration_belongs_to_the_trainer_that_it_is_launched_with(project: Check) -> None:
    result = project(
        "class A(Complete):\n    def apply_compile(self):\n        return work(self)\n\n"
        "class B(Complete):\n    pass\n\n"
        "def a():\n    return DreamTrainerConfig(device_parameters=DeviceParameters())\n\n"
        "def b():\n    return DreamTrainerConfig()\n\n"
        "if __name__ == '__main__':\n    A(a()).fit()\n    B(b()).fit()\n"
    )
    found = {t.name: [config.name for config in t.configs] for t in result.project.trainers}
    assert found == {"A": ["a"], "B": ["b"]}
    assert result.findings == ()


def test_main_may_change_what_it_was_given(project: Check) -> None:
    result = project(
        "class T(Complete):\n    pass\n\ndef c():\n"
        "    return DreamTrainerConfig(device_parameters=DeviceParameters())\n\n"
        "def main(config):\n    config.device_parameters.compile_model = False\n"
        '    T(config).fit()\n\nif __name__ == "__main__":\n    cli(main, c)\n'
    )
    assert hooks(result, "c") == {}
    assert result.findings == ()


def test_equal_findings_are_reported_once(project: Check) -> None:
    result = project(
        "def one():\n    return DreamTrainerConfig(device_parameters=DeviceParameters())\n\n"
        "def two():\n    return DreamTrainerConfig(device_parameters=DeviceParameters())\n"
    )
    (finding,) = result.findings
    assert finding.configs == ("one", "two")
    assert finding.config == "one"
    assert len(finding.notes) == 2


def test_a_folder_is_searched_for_trainers(project: Check, tmp_path: Path) -> None:
    project(
        "from lib.base import Base\n\nclass T(Base):\n    pass\n"
        "--- lib/base.py\nfrom dream_trainer import DreamTrainer\n\nclass Base(DreamTrainer):\n"
        "    def configure_models(self):\n        return work(self)\n"
        "--- lib/deep/child.py\nimport lib.base\n\nclass U(lib.base.Base):\n    pass\n"
        "--- pyproject.toml\n"
        "--- .venv/lib/a.py\nfrom dream_trainer import DreamTrainer\n\n"
        "class V(DreamTrainer):\n    pass\n"
        "--- dream_trainer/contract.py\n--- dream_trainer/configs/__init__.py\n"
        "--- dream_trainer/trainer.py\nclass DreamTrainer:\n    pass\n",
        prelude=False,
    )
    result = check(Options())
    assert [trainer.name for trainer in result.project.trainers] == ["T", "U"]
    assert codes(result) == ["DT206"] * 6


def test_launching_from_another_file(project: Check) -> None:
    text = (
        "class T(Complete):\n    pass\n"
        "--- launch.py\nfrom train import T\nfrom dream_trainer import DreamTrainerConfig\n"
        "from dream_trainer.configs import DeviceParameters\n\n"
        "T(DreamTrainerConfig(device_parameters=DeviceParameters())).fit()\n"
    )
    assert codes(project(text)) == []
    assert codes(project(text, paths=("launch.py",))) == ["DT201"]
    assert codes(project(text, paths=())) == ["DT201"]
