"""Input that nobody should write: the check says what it can, and soon, and never breaks."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_projects import PRELUDE, codes, sections

from dream_scaffold.check import Options, Result, check
from dream_scaffold.errors import DreamError

Check = Callable[..., Result]

SOUND = "config = DreamTrainerConfig()\n"

HOSTILE = sections(
    """
# -- recursion
def f():
    return f()

def g():
    return DreamTrainerConfig(seed=f())

# -- mutual recursion
def f(n): return g(n)

def g(n): return f(n)

x = f(1)

# -- recursive lambda
f = lambda: f()
x = f()

# -- endless loop
while True:
    x = 1

# -- growing loop
x = 'a'
while True:
    x = x + x

# -- nested loops
for a in range(1000):
    for b in range(1000):
        for c in range(1000):
            x = 1

# -- huge power
x = 9 ** 9 ** 9 ** 9

# -- huge shift
x = 1 << 10 ** 12

# -- huge repetition
x = 'a' * 10 ** 12
y = [0] * 10 ** 12
z = (10 ** 9) * 'b'

# -- huge format
x = '{:>9999999999}'.format(1)
y = '%9999999999d' % 1
z = f'{1:>999999999}'

# -- huge range
x = list(range(10 ** 12))

# -- division by zero
x = 1 / 0
y = 1 % 0
z = float('x')
w = int('a')

# -- unhashable
x = {[]: 1}
y = {{}: 1}
z = {1, []}
w = 1 in {}

# -- wrong types
x = 1 + 'a'
y = [1]['a']
z = {}[1]
w = ()[5]
v = -'a'
u = 'a' < 1

# -- names at odds
import dream_trainer as x
x = 1
del x
x.y.z = 1
x[0] = 1
print(x)

# -- self-containing
x = []
x.append(x)
y = x == x
z = {}
z['z'] = z
DreamTrainerConfig(seed=x)

# -- class of itself
class A(A):
    pass

class B(B.C):
    pass

# -- clashing bases
class A: pass
class B(A): pass
class C(A, B, Complete): pass

# -- odd bases
class A(*[], **{}): pass
class B(1): pass
class C(None, Complete): pass

# -- too many arguments
x = DeviceParameters(1, 2, 3)
y = DeviceParameters.HSDP()
z = DeviceParameters.nope()
w = DreamTrainerConfig(1)
v = replace()
u = field(1)

# -- odd values
x = DeviceParameters(dp_shard=[], comm=1, param_dtype=None)
y = TrainingParameters(n_epochs='x', gradient_clip_val='y', max_steps={})

# -- odd cli
cli()
cli(1)
cli(1, 2, 3)
cli(main=cli, config=cli)
cli(cli, {1: cli})

# -- odd trainer
Complete()
Complete(1, 2, x=3)
Complete(*x, **y)

# -- odd decorators
@1
def f(): pass

@f()
class A: pass

@(lambda x: 1)
class B(Complete): pass

# -- odd super
super().x()

def f():
    super().__init__()
f()

# -- odd statements
global x
async def f():
    async with a as b, c: pass
    async for d in e: yield d
    await g
    return
f()
try: pass
except* ValueError: pass

# -- odd match
match x:
    case [a, *b] if c: pass
    case {'k': v, **r}: pass
    case A(b=1): pass
    case None | True: pass
    case _: pass

# -- odd targets
(a, [b, *c]) = 1, (2, 3, 4)
a.b.c = 1
a[1:2] = 3
*x, = []
for a.b in [1]: pass

# -- early return
return 1
break
continue
yield 2

# -- foreign cycle
from train import *
import train
train.train.train

# -- post init loop
@dataclass
class C(DreamTrainerConfig):
    def __post_init__(self):
        C()

config = C()

# -- property loop
class P:
    @property
    def x(self):
        return self.x

y = P().x
"""
) | {
    "many nested calls": "def f(x): return x\n\ny = " + "f(" * 80 + "1" + ")" * 80 + "\n",
    "long name": f"{'x' * 100_000} = 1\n",
    "wide table": f"x = {list(range(20_000))}\n",
    "many branches": "import os\n" + "if os.environ['A']:\n    x = 1\nelse:\n    x = 2\n" * 200,
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
        "from a import make\n\ndef main(config):\n    Complete(config).fit()\n\n"
        'if __name__ == "__main__":\n    cli(main, make())\n'
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


def test_a_terminal_that_knows_no_accents(project: Check) -> None:
    project("class Träiner(DreamTrainer): ...\n")
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "dream_scaffold", "check", "--output-format", "concise"],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(root), "PYTHONIOENCODING": "ascii"},
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "which Tr\\xe4iner does not define." in done.stdout
