"""Input that nobody should write: the check says what it can, in bounded time, and never breaks."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_projects import PRELUDE, codes

from dream_scaffold.check import Options, Result, check
from dream_scaffold.errors import DreamError

Check = Callable[..., Result]

SOUND = "config = DreamTrainerConfig()\n"

HOSTILE = {
    "recursion": "def f():\n    return f()\n\ndef g():\n    return DreamTrainerConfig(seed=f())\n",
    "mutual recursion": "def f(n): return g(n)\n\ndef g(n): return f(n)\n\nx = f(1)\n",
    "recursive lambda": "f = lambda: f()\nx = f()\n",
    "endless loop": "while True:\n    x = 1\n",
    "growing loop": "x = 'a'\nwhile True:\n    x = x + x\n",
    "nested loops": "for a in range(1000):\n    for b in range(1000):\n"
    "        for c in range(1000):\n            x = 1\n",
    "huge power": "x = 9 ** 9 ** 9 ** 9\n",
    "huge shift": "x = 1 << 10 ** 12\n",
    "huge repetition": "x = 'a' * 10 ** 12\ny = [0] * 10 ** 12\nz = (10 ** 9) * 'b'\n",
    "huge format": "x = '{:>9999999999}'.format(1)\ny = '%9999999999d' % 1\nz = f'{1:>999999999}'\n",
    "huge range": "x = list(range(10 ** 12))\n",
    "division by zero": "x = 1 / 0\ny = 1 % 0\nz = float('x')\nw = int('a')\n",
    "unhashable": "x = {[]: 1}\ny = {{}: 1}\nz = {1, []}\nw = 1 in {}\n",
    "wrong types": "x = 1 + 'a'\ny = [1]['a']\nz = {}[1]\nw = ()[5]\nv = -'a'\nu = 'a' < 1\n",
    "names at odds": "import dream_trainer as x\nx = 1\ndel x\nx.y.z = 1\nx[0] = 1\nprint(x)\n",
    "self-containing": "x = []\nx.append(x)\ny = x == x\nz = {}\nz['z'] = z\nDreamTrainerConfig(seed=x)\n",
    "class of itself": "class A(A):\n    pass\n\nclass B(B.C):\n    pass\n",
    "clashing bases": "class A: pass\nclass B(A): pass\nclass C(A, B, Complete): pass\n",
    "odd bases": "class A(*[], **{}): pass\nclass B(1): pass\nclass C(None, Complete): pass\n",
    "too many arguments": "x = DeviceParameters(1, 2, 3)\ny = DeviceParameters.HSDP()\n"
    "z = DeviceParameters.nope()\nw = DreamTrainerConfig(1)\nv = replace()\nu = field(1)\n",
    "odd values": "x = DeviceParameters(dp_shard=[], comm=1, param_dtype=None)\n"
    "y = TrainingParameters(n_epochs='x', gradient_clip_val='y', max_steps={})\n",
    "odd cli": "cli()\ncli(1)\ncli(1, 2, 3)\ncli(main=cli, config=cli)\ncli(cli, {1: cli})\n",
    "odd trainer": "Complete()\nComplete(1, 2, x=3)\nComplete(*x, **y)\n",
    "odd decorators": "@1\ndef f(): pass\n\n@f()\nclass A: pass\n\n@(lambda x: 1)\nclass B(Complete): pass\n",
    "odd super": "super().x()\n\ndef f():\n    super().__init__()\nf()\n",
    "odd statements": "global x\nasync def f():\n    async with a as b, c: pass\n"
    "    async for d in e: yield d\n    await g\n    return\nf()\ntry: pass\nexcept* ValueError: pass\n",
    "odd match": "match x:\n    case [a, *b] if c: pass\n    case {'k': v, **r}: pass\n"
    "    case A(b=1): pass\n    case None | True: pass\n    case _: pass\n",
    "odd targets": "(a, [b, *c]) = 1, (2, 3, 4)\na.b.c = 1\na[1:2] = 3\n*x, = []\nfor a.b in [1]: pass\n",
    "early return": "return 1\nbreak\ncontinue\nyield 2\n",
    "long name": f"{'x' * 100_000} = 1\n",
    "wide table": f"x = {list(range(20_000))}\n",
    "many branches": "import os\n" + "if os.environ['A']:\n    x = 1\nelse:\n    x = 2\n" * 200,
    "many nested calls": "def f(x): return x\n\ny = " + "f(" * 80 + "1" + ")" * 80 + "\n",
    "foreign cycle": "from train import *\nimport train\ntrain.train.train\n",
    "post init loop": "@dataclass\nclass C(DreamTrainerConfig):\n    def __post_init__(self):\n"
    "        C()\n\nconfig = C()\n",
    "property loop": "class P:\n    @property\n    def x(self):\n        return self.x\n\ny = P().x\n",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_source(project: Check, text: str) -> None:
    start = time.monotonic()
    codes(project(text + SOUND, verbose=True))
    assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 5000 + ")" * 5000,
        "+".join(["1"] * 5000),
        "x" + ".x" * 5000,
        "-" * 5000 + "1",
        "[" * 90 + "]" * 90,
        "not " * 3000 + "1",
        "lambda: " * 900 + "1",
    ],
    ids=["parentheses", "sums", "attributes", "minus", "lists", "not", "lambda"],
)
def test_deep_nesting(project: Check, expression: str) -> None:
    codes(project(f"{SOUND}x = {expression}\nclass T(Complete):\n    pass\n", verbose=True))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\0\1\2", "The file is not text."),
        (b"x = '\xff'", "The file is not UTF-8."),
        (b"# coding: nonsense\nx = '\xff'", "The file is not UTF-8."),
        (b"def f(:\n", "Invalid syntax."),
        (b"x = (\n", "'(' was never closed."),
        (b"if x:\ny = 1\n", "Expected an indented block after 'if' statement on line 1."),
        (b"x = 1\n" * 400_000, "The file is larger than 2,000,000 bytes."),
    ],
)
def test_a_broken_file_is_told_and_the_others_are_checked(
    project: Check, tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "config.py").write_bytes(content)
    result = project(
        "from config import thing\n\nclass T(Complete):\n    def init_weights(self, std):\n"
        "        return 1\n"
    )
    assert [(f.code, f.place.path) for f in result.findings] == [
        ("DT000", "config.py"),
        ("DT204", "train.py"),
    ]
    assert result.findings[0].message == message


def test_other_encodings(project: Check, tmp_path: Path) -> None:
    (tmp_path / "config.py").write_bytes("# coding: latin-1\nx = 'é'\n".encode("latin-1"))
    (tmp_path / "marked.py").write_bytes(b"\xef\xbb\xbfx = 1\r\ny = 2\r\n")
    result = project(f"import config, marked\n{SOUND}")
    assert codes(result) == []


def test_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DreamError):
        check(Options())


def test_links_in_circles(project: Check, tmp_path: Path) -> None:
    project(SOUND)
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "dead.py").symlink_to(tmp_path / "nowhere.py")
    assert codes(check(Options())) == []


def test_import_cycles(project: Check) -> None:
    result = project(
        "from a import make\n\ndef main(config):\n    Complete(config).fit()\n\ncli(main, make())\n"
        "--- a.py\nimport b\nfrom dream_trainer import DreamTrainerConfig\n\n"
        "def make():\n    return DreamTrainerConfig(seed=b.seed)\n"
        "--- b.py\nfrom a import make\nimport train\n\nseed = 1\n"
    )
    assert codes(result) == []


FRAGMENTS = st.lists(
    st.sampled_from(
        [
            "x = DeviceParameters.FSDP()",
            "x.compile_model = y",
            "def f(a, *b, c=1, **d):",
            "    return x",
            "class C(DreamTrainerConfig):",
            "class T(Complete):",
            "    apply_compile = x",
            "    y: int = 1",
            "@dataclass",
            "if x:",
            "else:",
            "    x = f(x)",
            "for x in y:",
            "    break",
            "try:",
            "except E:",
            "with f(x) as y:",
            "cli(f, x)",
            "y = C(device_parameters=x, **z)",
            "z = {'a': x, **y}",
            "y = [x for x in z if x]",
            "T(y).fit()",
            "from train import x",
            "while y:",
            "match x:",
            "    case 1:",
            "del x",
            "y = x[0] if x else -x",
        ]
    ),
    max_size=14,
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(lines=FRAGMENTS)
def test_any_source_is_survived(project: Check, lines: list[str]) -> None:
    text = "\n".join(lines)
    # Blocks that lack a body get one, so that more of the samples parse.
    fixed = "\n".join(
        line + (" pass" if line.endswith(":") and not follows.startswith("    ") else "")
        for line, follows in zip(lines, [*lines[1:], ""], strict=False)
    )
    for source in (text, fixed):
        codes(project(f"{source}\n{SOUND}", verbose=True))


def test_the_prelude_itself_is_sound() -> None:
    compile(PRELUDE, "train.py", "exec")
