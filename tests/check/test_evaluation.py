"""What the evaluation of configurations understands, form by form.

Each project has one configuration, written in another way, that asks for
`apply_fully_shard` and not for `apply_compile`, unless the test says otherwise.
"""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from textwrap import indent

import pytest
from small_projects import codes, hooks, sections

from dream_scaffold.check import Result
from dream_scaffold.check.hinge import configs

Check = Callable[..., Result]

CONFIG = """
--- config.py
from dataclasses import dataclass, field, replace
from dream_trainer import DreamTrainerConfig
from dream_trainer.configs import DeviceParameters, TrainingParameters

@dataclass(kw_only=True)
class Config(DreamTrainerConfig):
    batch_size: int = 8

def fsdp_config() -> Config:
    return Config(device_parameters=DeviceParameters.FSDP(compile_model=False))
"""
LAUNCH = """
def main(config):
    Complete(config).fit()

if __name__ == "__main__":
    cli(main, fsdp_config())
"""
SHARDED = {"apply_fully_shard": "required"}

IMPORTS = {
    "from": f"from config import fsdp_config\n{LAUNCH}{CONFIG}",
    "alias": "from config import fsdp_config as chosen\n"
    + LAUNCH.replace("fsdp_config", "chosen")
    + CONFIG,
    "module": f"import config\n{LAUNCH.replace('fsdp_config', 'config.fsdp_config')}{CONFIG}",
    "module alias": "import config as c\n"
    + LAUNCH.replace("fsdp_config", "c.fsdp_config")
    + CONFIG,
    "star": f"from config import *\n{LAUNCH}{CONFIG}",
    "star with __all__": f"from config import *\n{LAUNCH}{CONFIG}__all__ = ['fsdp_config']\n",
    "relative": f"from .config import fsdp_config\n{LAUNCH}{CONFIG}",
    "package": "from configs.sharded import fsdp_config\n"
    + LAUNCH
    + CONFIG.replace("config.py", "configs/sharded.py")
    + "--- configs/__init__.py\n",
    "folder without __init__": "from configs.sharded import fsdp_config\n"
    + LAUNCH
    + CONFIG.replace("config.py", "configs/sharded.py"),
    "re-export": "from configs import fsdp_config\n"
    + LAUNCH
    + CONFIG.replace("config.py", "configs/sharded.py")
    + "--- configs/__init__.py\nfrom .sharded import fsdp_config\n",
    "dotted": "import configs.sharded\n"
    + LAUNCH.replace("fsdp_config", "configs.sharded.fsdp_config")
    + CONFIG.replace("config.py", "configs/sharded.py")
    + "--- configs/__init__.py\n",
    "submodule by from": "from configs import sharded\n"
    + LAUNCH.replace("fsdp_config", "sharded.fsdp_config")
    + CONFIG.replace("config.py", "configs/sharded.py")
    + "--- configs/__init__.py\n",
    "try": "try:\n    from config import fsdp_config\nexcept ImportError:\n"
    f"    from .config import fsdp_config\n{LAUNCH}{CONFIG}",
    "try, first is foreign": "try:\n    from installed import fsdp_config\n"
    f"except ImportError:\n    from config import fsdp_config\n{LAUNCH}{CONFIG}",
    "in the function": LAUNCH.replace(
        "    cli(main", "    from config import fsdp_config\n    cli(main"
    )
    + CONFIG,
    "import cycle": f"from config import fsdp_config\n{LAUNCH}{CONFIG}import train\n",
    "type checking": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
    f"    from config import Config\nfrom config import fsdp_config\n{LAUNCH}{CONFIG}",
}


@pytest.mark.parametrize("text", IMPORTS.values(), ids=IMPORTS)
def test_imports(project: Check, text: str) -> None:
    assert hooks(project(text), "fsdp_config") == SHARDED


LAUNCHES = {
    "called": "cli(main, fsdp_config())",
    "factory": "cli(main, fsdp_config)",
    "keywords": "cli(main=main, config=fsdp_config)",
    "mapping": 'cli(main, {"fsdp": fsdp_config})',
    "mapping of instances": 'cli(main, {"fsdp": fsdp_config()})',
    "without cli": "main(fsdp_config())",
    "trainer": "Complete(fsdp_config()).fit()",
    "trainer by keyword": "Complete(config=fsdp_config()).fit()",
    "variable": "chosen = fsdp_config()\n    trainer = Complete(chosen)\n    trainer.fit()",
    "lambda": "cli(lambda config: Complete(config).fit(), fsdp_config)",
    "dict look-up": 'ALL = {"fsdp": fsdp_config}\n    main(ALL["fsdp"]())',
    "entrypoint": "start()",
    "entrypoint with argument": "entrypoint(main)(fsdp_config())",
    "with": "with something() as x:\n        main(fsdp_config())",
    "try": "try:\n        main(fsdp_config())\n    finally:\n        pass",
    "foreign caller": "torch.multiprocessing.spawn(start)",
    "partial": "from functools import partial\n    partial(main, fsdp_config())()",
}


@pytest.mark.parametrize("launch", LAUNCHES.values(), ids=LAUNCHES)
def test_launches(project: Check, launch: str) -> None:
    result = project(
        "import torch\nfrom config import fsdp_config\n"
        + LAUNCH.replace("cli(main, fsdp_config())", launch).replace(
            "if __name__", "@entrypoint\ndef start():\n    main(fsdp_config())\n\nif __name__"
        )
        + CONFIG
    )
    assert hooks(result, "fsdp_config") == SHARDED


BODIES = sections(
    """
# -- local variable
device = DeviceParameters.FSDP(compile_model=False)
return Config(device_parameters=device)

# -- replace
base = Config(device_parameters=DeviceParameters.FSDP())
device = replace(base.device_parameters, compile_model=False)
return replace(base, device_parameters=device)

# -- deepcopy
import copy
base = Config(device_parameters=DeviceParameters.FSDP())
mine = copy.deepcopy(base)
mine.device_parameters.compile_model = False
return mine

# -- helper with arguments
return make(2 - 2, shard='auto')

# -- helper with defaults
return make(shard='auto')

# -- keyword dict
common = {'compile_model': False}
return Config(device_parameters=DeviceParameters.FSDP(**common))

# -- merged dict
common = dict(compile_model=True) | {'compile_model': False}
return Config(device_parameters=DeviceParameters.FSDP(**common))

# -- nested dict
return Config(**{'device_parameters': DeviceParameters.FSDP(**COMMON)})

# -- mutation
config = Config(device_parameters=DeviceParameters.FSDP())
config.device_parameters.compile_model = False
return config

# -- assignment of a part
config = Config()
config.device_parameters = DeviceParameters.FSDP(compile_model=False)
return config

# -- setattr
config = Config(device_parameters=DeviceParameters.FSDP())
setattr(config.device_parameters, 'compile_model', False)
return config

# -- loop of setattr
config = Config(device_parameters=DeviceParameters.FSDP())
for name, value in {'compile_model': False}.items():
    setattr(config.device_parameters, name, value)
return config

# -- constant
return Config(device_parameters=DeviceParameters.FSDP(compile_model=COMPILE))

# -- expression
compile_model = not (1 < 2 <= 3 and 'a' in ['a'])
return Config(
    device_parameters=DeviceParameters(dp_shard=2 ** 3 // 2, compile_model=compile_model)
)

# -- conditional
return Config(device_parameters=DeviceParameters.FSDP(compile_model=False if NODES > 1 else True))

# -- branch
if NODES == 2:
    return make(shard='auto')
return Config()

# -- match
match NODES:
    case 1:
        return Config()
    case 2 | 3:
        return make(shard='auto')
return Config()

# -- while
n = 1
while n < 4:
    n *= 2
return make(shard=n)

# -- comprehension
return make(shard=[n * n for n in (1, 2) if n > 1][0])

# -- method of a dict
return make(shard={'a': 4}.get('a', 1))

# -- class method
return Presets.sharded()

# -- static method
return Presets.plain()

# -- default factory
return Sharded()

# -- inherited default
return Child(batch_size=2)

# -- __post_init__
return Fixed(device_parameters=DeviceParameters.FSDP())

# -- __init__
return Written('auto')

# -- an error that the project catches
try:
    return Config(device_parameters=DeviceParameters.FSDP(compile_modle=False))
except TypeError:
    return Config(device_parameters=DeviceParameters.FSDP(compile_model=False))

# -- a refusal that the project catches
def fitting(degree):
    try:
        return DeviceParameters.FSDP(tensor_parallel=degree, compile_model=degree == 0)
    except (KeyError, ValueError):
        return fitting(degree + 1)
return Config(device_parameters=fitting(0))

# -- a suppressed error
import contextlib
device = DeviceParameters.FSDP(compile_model=False)
with contextlib.suppress(TypeError):
    device = DeviceParameters(compile_modle=True)
return Config(device_parameters=device)

# -- what is for annotations only
import typing
compile_model = False
if typing.TYPE_CHECKING:
    compile_model = True
return Config(device_parameters=DeviceParameters.FSDP(compile_model=compile_model))

# -- inner function
def inner(compile_model):
    return Config(device_parameters=DeviceParameters.FSDP(compile_model=compile_model))
return inner(False)

# -- partial
from functools import partial
return partial(make, shard='auto')()

# -- cast
from typing import cast
return cast(Config, make(shard=8))

# -- unpacking
(a, b), *rest = (False, 4), 1, 2
return make(a, shard=b)

# -- walrus
return make(shard=(n := 4))

# -- raise guard
import torch
if not torch.cuda.is_available():
    raise RuntimeError('no')
return make(shard=2)

# -- print guard
import os
if os.environ.get('DEBUG'):
    print('x')
return make(shard=2)

# -- decorated
return cached()

# -- try
try:
    return make(shard=2)
except Exception:
    raise

# -- dtype
import torch
return Config(
    device_parameters=DeviceParameters.FSDP(param_dtype=torch.bfloat16, compile_model=False)
)

# -- callbacks
from dream_trainer import callbacks
return Config(
    callbacks=[callbacks.ProgressBar()],
    device_parameters=DeviceParameters.FSDP(compile_model=False),
)
"""
)
EXTRAS = """
import functools
from config import Config
from dream_trainer.configs import DeviceParameters
from dataclasses import dataclass, field, replace

COMPILE = False
NODES = 2
COMMON = {"compile_model": False}

def make(compile_model=False, *, shard=1) -> "Config":
    return Config(
        device_parameters=DeviceParameters(dp_shard=shard, compile_model=bool(compile_model))
    )

@functools.cache
def cached() -> "Config":
    return make(shard=4)

class Presets:
    @classmethod
    def sharded(cls):
        return cls.plain()

    @staticmethod
    def plain():
        return make(shard="auto")

@dataclass(kw_only=True)
class Sharded(Config):
    device_parameters: DeviceParameters = field(
        default_factory=lambda: DeviceParameters.FSDP(compile_model=False)
    )

@dataclass(kw_only=True)
class Child(Sharded):
    lr: float = 1e-3

@dataclass(kw_only=True)
class Fixed(Config):
    def __post_init__(self):
        self.device_parameters.compile_model = False

class Written(Config):
    def __init__(self, shard):
        super().__init__(device_parameters=DeviceParameters(dp_shard=shard))
        self.device_parameters.compile_model = False

"""


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_factory_bodies(project: Check, body: str) -> None:
    factory = f"{EXTRAS}def chosen():\n{indent(body, '    ')}\n"
    factory += LAUNCH.replace("fsdp_config", "chosen")
    result = project(factory + CONFIG)
    assert hooks(result, "chosen") == SHARDED
    assert [c for c in codes(result, "error") if c != "DT201"] == []


def test_the_evaluation_of_factories_agrees_with_python(project: Check, tmp_path: Path) -> None:
    bodies = [body for body in BODIES.values() if "torch" not in body and "callbacks" not in body]
    project("config = 1\n" + CONFIG)
    for number, body in enumerate(bodies):
        factory = f"{EXTRAS}def chosen():\n{indent(body, '    ')}\n"
        (tmp_path / f"sample_{number}.py").write_text(factory)
    script = (
        "import importlib\n"
        f"for number in range({len(bodies)}):\n"
        "    config = importlib.import_module(f'sample_{number}').chosen()\n"
        "    device = config.device_parameters\n"
        "    print(type(config).__name__, device.dp_shard != 1, device.compile_model)\n"
    )
    runtime = Path(__file__).parents[2] / "runtime"
    environment = {"PYTHONPATH": f"{runtime}:{tmp_path}"}
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment
    )
    lines = told.stdout.splitlines()
    assert len(lines) == len(bodies), told.stderr
    assert {line.partition(" ")[2] for line in lines} == {"True False"}


UNDECIDED = {
    "environment": "os.environ.get('C') == '1'",
    "environment item": "os.environ['C']",
    "foreign function": "requests.get('c').ok",
    "file": "open('c').read() == '1'",
    "argument": "sys.argv[1]",
    "unknown and": "os.environ.get('C') and True",
    "undefined name": "not_defined",
    "foreign attribute": "torch.cuda.is_available()",
}


@pytest.mark.parametrize("expression", UNDECIDED.values(), ids=UNDECIDED)
def test_an_undecided_field_makes_its_hook_possible(project: Check, expression: str) -> None:
    result = project(
        "import os, sys, torch, requests\n\ndef some_config():\n"
        "    return DreamTrainerConfig(device_parameters=DeviceParameters.FSDP("
        f"compile_model={expression}))",
        verbose=True,
    )
    assert hooks(result, "some_config") == {
        "apply_compile": "possible",
        "apply_fully_shard": "required",
    }
    assert codes(result, "error") == ["DT201"]
    assert sorted(codes(result, "info")) == ["DT002", "DT201"]


BRANCHES = sections(
    """
# -- if
if os.environ.get('BIG'):
    return FSDP()
return ONE()

# -- if assigned
device = ONE()
if os.environ.get('BIG'):
    device = FSDP()
return device

# -- if expression
return FSDP() if len(sys.argv) > 2 else ONE()

# -- mutation under if
device = ONE()
if os.environ.get('BIG'):
    device.dp_shard = 4
return device

# -- unknown degree
return DeviceParameters(dp_shard=int(os.environ['N']), compile_model=False)

# -- unknown loop
device = ONE()
for x in sys.argv:
    device.dp_shard = 4
return device

# -- match
match sys.argv[1]:
    case 'big':
        return FSDP()
    case _:
        return ONE()
"""
)


@pytest.mark.parametrize("body", BRANCHES.values(), ids=BRANCHES)
def test_an_undecided_branch_makes_its_hook_possible(project: Check, body: str) -> None:
    result = project(
        "import os, sys\n\ndef FSDP():\n    return DeviceParameters.FSDP(compile_model=False)\n\n"
        "def ONE():\n    return DeviceParameters.SINGLE_DEVICE(compile_model=False)\n\n"
        f"def device():\n{indent(body, '    ')}\n\n"
        "def some_config():\n    return DreamTrainerConfig(device_parameters=device())"
    )
    assert hooks(result, "some_config") == {"apply_fully_shard": "possible"}
    assert codes(result, "error") == []


def test_what_foreign_code_may_have_changed_is_undecided(project: Check) -> None:
    result = project(
        "import hydra\n\ndef some_config():\n    config = DreamTrainerConfig()\n"
        "    hydra.apply(config)\n    return config"
    )
    assert set(hooks(result, "some_config").values()) == {"possible"}
    assert codes(result, "error") == []


@pytest.mark.parametrize("names", ["self.names", "open('names')"])
def test_setattr_by_an_unknown_name_forgets_the_record(project: Check, names: str) -> None:
    result = project(
        "import sys\n\ndef some_config():\n    config = DreamTrainerConfig()\n"
        "    for item in sys.argv:\n        name, value = item.split('=')\n"
        "        setattr(config.device_parameters, name, value)\n    return config"
    )
    assert hooks(result, "some_config")["apply_compile"] == "possible"
    assert codes(result, "error") == []


def test_what_is_undecided_is_told_with_its_reason(project: Check) -> None:
    result = project(
        "import os\n\ndef c():\n    return DreamTrainerConfig(device_parameters=DeviceParameters("
        "compile_model=os.environ.get('C') == '1'))",
        verbose=True,
    )
    possible, reason = result.findings
    assert possible.message == (
        "compile_model=True calls apply_compile(), which Complete does not define. "
        "Whether it comes to that is not decided: `os.environ.get('C')` is outside the project."
    )
    assert [note.text for note in possible.notes] == ["c does not decide compile_model"]
    assert reason.message == (
        "compile_model of c is not decided: `os.environ.get('C')` is outside the project."
    )


def test_parameters_that_are_open_altogether_are_told_once(project: Check) -> None:
    result = project(
        "import sys\n\ndef c():\n    return DreamTrainerConfig(device_parameters="
        "DeviceParameters(**read(sys.argv)))",
        verbose=True,
    )
    assert set(hooks(result, "c").values()) == {"possible"}
    (finding,) = result.findings
    number = len(fields(configs.DeviceParameters))
    assert finding.message == (
        f"{number} fields of c are not decided: `read(sys.argv)` cannot be decided from source."
    )


CAUGHT_BY_NOBODY = """
    def config():
        try:
            return DreamTrainerConfig(device_parameters=DeviceParameters(tensor_paralel=2))
        except KeyError:
            return DreamTrainerConfig(device_parameters=DeviceParameters())

    Complete(config()).fit()
"""


def test_an_error_that_no_handler_is_for_is_told(project: Check) -> None:
    assert "DT107" in codes(project(CAUGHT_BY_NOBODY))


@pytest.mark.parametrize(
    "body",
    [
        "def __setattr__(self, name, value):\n        object.__setattr__(self, name, value * 2)",
        "@property\n    def n(self):\n        return self.m\n"
        "    @n.setter\n    def n(self, value):\n        self.m = value * 2",
    ],
)
def test_what_setting_an_attribute_does_may_be_anything(project: Check, body: str) -> None:
    result = project(
        f"class Choice:\n    {body}\n\nchoice = Choice()\nchoice.n = 1\n"
        "config = DreamTrainerConfig("
        "device_parameters=DeviceParameters(tensor_parallel=choice.n, compile_model=False))\n"
        "Complete(config).fit()\n"
    )
    assert result.project.trainers[0].configs[0].axes["tp"] == "unknown"


def test_what_is_in_a_list_of_something_unknown_is_not_decided(project: Check) -> None:
    result = project(
        "import os\nn = 2 if 'a' in ['b', os.environ.get('ANY')] else 1\n"
        "config = DreamTrainerConfig("
        "device_parameters=DeviceParameters(tensor_parallel=n, compile_model=False))\n"
        "Complete(config).fit()\n"
    )
    assert result.project.trainers[0].configs[0].axes["tp"] == "unknown"
