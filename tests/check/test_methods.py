"""Signatures and stubs."""

from collections.abc import Callable
from typing import Any

import pytest
from small_projects import PRELUDE, codes

from dream_scaffold.check import Result

Check = Callable[..., Result]


@pytest.mark.parametrize(
    "definition",
    [
        "def count_items(self, batch): return 1",
        "def count_items(self, b, scale=1): return 1",
        "def count_items(self, *args): return 1",
        "def count_items(*args): return 1",
        "def count_items(self, batch, *, scale=1): return 1",
        "def count_items(self, batch, /, **rest): return 1",
        "@staticmethod\n    def count_items(batch): return 1",
        "@classmethod\n    def count_items(cls, batch): return 1",
        "count_items = lambda self, batch: 1",
        "count_items = len",
        "@property\n    def count_items(self): return len",
        "from functools import partialmethod as p\n    count_items = p(len)",
    ],
)
def test_what_takes_the_arguments(project: Check, definition: str) -> None:
    assert codes(project(f"class T(Complete):\n    {definition}")) == []


@pytest.mark.parametrize(
    ("definition", "shown"),
    [
        ("def count_items(self): return 1", "(self)"),
        ("def count_items(self, batch, scale): return 1", "(self, batch, scale)"),
        ("def count_items(self, batch, *, scale): return 1", "(self, batch, *, scale)"),
        ("def count_items(self, **batch): return 1", "(self, **batch)"),
        ("@staticmethod\n    def count_items(): return 1", "()"),
        ("@classmethod\n    def count_items(cls): return 1", "(cls)"),
        ("count_items = lambda batch: 1", "(batch)"),
    ],
)
def test_what_does_not(project: Check, definition: str, shown: str) -> None:
    (finding,) = project(f"class T(Complete):\n    {definition}").findings
    assert finding.code == "DT204"
    assert finding.message == (
        f"The runtime calls count_items(batch), but T.count_items is count_items{shown}."
    )
    assert finding.help == "Write def count_items(self, batch)."


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("pass", "DT202"),
        ("...", "DT202"),
        ('"Say."', "DT202"),
        ('"Say."\n        pass', "DT202"),
        ("raise NotImplementedError", "DT202"),
        ('raise NotImplementedError("Write it.")', "DT202"),
        ('raise NotImplementedError(f"Write {self}.")', "DT202"),
        ("return None", "DT202"),
        ("return print", "DT207"),
        ("if self.x: raise NotImplementedError", "DT207"),
        ("raise ValueError", ""),
        ("self.model.compile()", ""),
    ],
)
def test_stubs(project: Check, body: str, code: str) -> None:
    result = project(
        f"class T(Complete):\n    def apply_compile(self):\n        {body}\n\n"
        "config = DreamTrainerConfig(device_parameters=DeviceParameters())"
    )
    assert codes(result) == [code] * bool(code)


SHARES = "lambda self, config: shard(self.model, config)"
MADE = {
    "set on the class": f"class T(Complete): pass\nT.apply_fully_shard = {SHARES}",
    "setattr": f"class T(Complete): pass\nsetattr(T, 'apply_fully_shard', {SHARES})",
    "deleted": f"class T(Complete):\n    apply_fully_shard = {SHARES}\ndel T.apply_fully_shard",
    "delattr": (
        f"class T(Complete):\n    apply_fully_shard = {SHARES}\ndelattr(T, 'apply_fully_shard')"
    ),
    "deleted in the body": (
        f"class T(Complete):\n    apply_fully_shard = {SHARES}\n    del apply_fully_shard"
    ),
    "a base adds it to what derives": (
        "class Adding(Complete):\n    def __init_subclass__(cls, **options):\n"
        "        super().__init_subclass__(**options)\n"
        f"        cls.apply_fully_shard = {SHARES}\nclass T(Adding): pass"
    ),
    "a base does so when told": (
        "class Adding(Complete):\n    def __init_subclass__(cls, shards=False):\n"
        f"        if shards:\n            cls.apply_fully_shard = {SHARES}\n"
        "class T(Adding, shards=True): pass"
    ),
    "a base does not when not told": (
        "class Adding(Complete):\n    def __init_subclass__(cls, shards=False):\n"
        f"        if shards:\n            cls.apply_fully_shard = {SHARES}\nclass T(Adding): pass"
    ),
    "an abstract base": "import abc\nclass T(Complete, metaclass=abc.ABCMeta): pass",
    "made in a function": (
        "def made(base):\n    class T(base):\n"
        f"        apply_fully_shard = {SHARES}\n    return T\nT = made(Complete)"
    ),
}


@pytest.mark.parametrize("text", MADE.values(), ids=MADE)
def test_hooks_are_those_of_the_real_class(project: Callable[..., Result], text: str) -> None:
    names: dict[str, Any] = {}
    exec(f"{PRELUDE}\n{text}", names)
    config = "DreamTrainerConfig(device_parameters=DeviceParameters.FSDP(compile_model=False))"
    result = project(f"{text}\nT({config}).fit()\n")
    trainer = next(t for t in result.project.trainers if t.name == "T")
    assert trainer.hooks == frozenset(names["T"].defined_hooks())
    assert not trainer.open


def test_a_metaclass_may_add_hooks(project: Callable[..., Result]) -> None:
    result = project(
        "class Adding(type(Complete)):\n    def __new__(cls, name, bases, body):\n"
        f"        body['apply_fully_shard'] = {SHARES}\n"
        "        return super().__new__(cls, name, bases, body)\n"
        "class T(Complete, metaclass=Adding): pass\n"
        "T(DreamTrainerConfig(device_parameters=DeviceParameters.FSDP(compile_model=False))).fit()"
    )
    assert [f.severity for f in result.findings if f.code == "DT201"] == ["info"]
