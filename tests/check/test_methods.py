"""Signatures and stubs."""

from collections.abc import Callable

import pytest
from small_projects import codes

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
    ("body", "is_stub"),
    [
        ("pass", True),
        ("...", True),
        ('"Say."', True),
        ('"Say."\n        pass', True),
        ("raise NotImplementedError", True),
        ('raise NotImplementedError("Write it.")', True),
        ("return None", False),
        ("raise ValueError", False),
        ("self.model.compile()", False),
        ("if self.x: raise NotImplementedError", False),
    ],
)
def test_stubs(project: Check, body: str, is_stub: bool) -> None:
    result = project(
        f"class T(Complete):\n    def apply_compile(self):\n        {body}\n\n"
        "config = DreamTrainerConfig(device_parameters=DeviceParameters())"
    )
    assert codes(result) == ["DT202"] * is_stub
