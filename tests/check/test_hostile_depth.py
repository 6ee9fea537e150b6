"""Source that is nested, chained, long or wide beyond all reason."""

from pathlib import Path

import pytest
from forked import check_apart
from small_projects import PRELUDE, sections

LAUNCH = "\nComplete(DreamTrainerConfig()).fit()\n"


def ladder(line: str, count: int, end: str) -> str:
    """`line` at every depth of indentation, and `end` at the deepest."""
    return "".join(f"{' ' * i}{line.format(i=i)}\n" for i in range(count)) + " " * count + end


EXPRESSIONS = {
    "parentheses": "(" * 150 + "1" + ")" * 150,
    "many parentheses": "(" * 100_000 + ")" * 100_000,
    "lists": "[" * 150 + "]" * 150,
    "open lists": "[" * 100_000,
    "mappings": "{1:" * 90 + "1" + "}" * 90,
    "many mappings": "{1:" * 5_000 + "1" + "}" * 5_000,
    "attributes": "x" + ".x" * 900,
    "many attributes": "x" + ".x" * 10_000,
    "calls": "f" + "()" * 900,
    "many calls": "f" + "()" * 10_000,
    "nested calls": "f(" * 90 + "1" + ")" * 90,
    "subscripts": "x" + "[0]" * 900,
    "many subscripts": "x" + "[0]" * 10_000,
    "sums": "+".join(["1"] * 900),
    "many sums": "+".join(["1"] * 50_000),
    "powers": "**".join(["1"] * 900),
    "many powers": "**".join(["1"] * 20_000),
    "comparisons": "<".join(["1"] * 50_000),
    "ands": " and ".join(["x"] * 50_000),
    "minus": "-" * 900 + "1",
    "many minus": "-" * 20_000 + "1",
    "not": "not " * 900 + "1",
    "lambdas": "lambda: " * 400 + "1",
    "many lambdas": "lambda: " * 10_000 + "1",
    "conditionals": "1 if x else " * 400 + "2",
    "many conditionals": "1 if x else " * 10_000 + "2",
    "walrus": "(y := " * 90 + "1" + ")" * 90,
    "awaits": "await " * 900 + "x",
    "comprehensions": "[x for x in " * 80 + "[1]" + "]" * 80,
    "generators of one": "[0 " + "for x in y " * 3_000 + "]",
    "conditions of one": "[0 for x in y " + "if x " * 3_000 + "]",
    "formatted": "f'{" * 1 + "(" * 90 + "1" + ")" * 90 + "}'",
    "many formatted": "f'" + "{x}" * 20_000 + "'",
    "joined texts": "'a' " * 50_000,
    "arguments": "f(" + "1, " * 50_000 + ")",
    "keywords": "f(" + ", ".join(f"a{i}=1" for i in range(20_000)) + ")",
    "spreads": "f(" + "*x, **y, " * 5_000 + ")",
    "a long text": repr("a" * 1_500_000),
    "a long number": "1" * 4_000,
    "a longer number": "1" * 100_000,
    "a long hexadecimal": "0x" + "f" * 1_000_000,
    "a long name": "n" * 1_000_000,
    "wide characters": repr("\N{PILE OF POO}" * 300_000),
    "a wide list": "[" + "x, " * 200_000 + "]",
    "a wide mapping": "{" + "'a': x, " * 100_000 + "}",
}

PROGRAMS = {
    "functions": ladder("def f{i}():", 90, "pass"),
    "many functions": ladder("def f{i}():", 200, "pass"),
    "classes": ladder("class C{i}(Complete):", 90, "pass"),
    "many classes": ladder("class C{i}:", 200, "pass"),
    "ifs": ladder("if x{i}:", 90, "pass"),
    "loops": ladder("for x{i} in range(9):", 19, "pass"),
    "whiles": ladder("while x{i}:", 19, "pass"),
    "withs": ladder("with x{i} as y{i}:", 90, "pass"),
    "elifs": "if x: pass\n" + "elif x: pass\n" * 900,
    "many elifs": "if x: pass\n" + "elif x: pass\n" * 5_000,
    "handlers": "try: pass\n" + "except x: pass\n" * 5_000,
    "cases": "match x:\n" + "  case 1: pass\n" * 5_000,
    "deep cases": "match x:\n  case " + "[" * 90 + "]" * 90 + ": pass\n",
    "many choices": "match x:\n  case " + " | ".join(["1"] * 20_000) + ": pass\n",
    "targets": "a = " * 5_000 + "1\n",
    "deep targets": "(" * 90 + "a" + ",)" * 90 + " = 1\n",
    "decorators": "@x\n" * 5_000 + "def f(): pass\n",
    "class decorators": "@x\n" * 5_000 + "class C(Complete): pass\n",
    "bases": "class C(" + ", ".join(f"B{i}" for i in range(2_000)) + ", Complete): pass\n",
    "a chain of bases": "class B0(Complete): pass\n"
    + "".join(f"class B{i + 1}(B{i}): pass\n" for i in range(700)),
    "a lattice of bases": "class A0(Complete): pass\nclass B0(Complete): pass\n"
    + "".join(
        f"class A{i + 1}(A{i}, B{i}): pass\nclass B{i + 1}(A{i}, B{i}): pass\n" for i in range(40)
    ),
    "parameters": "def f(" + ", ".join(f"a{i}=1" for i in range(20_000)) + "): pass\n",
    "statements": "x = 1\n" * 200_000,
    "statements on a line": "x = 1;" * 200_000 + "\n",
    "wide statements on a line": "é = DeviceParameters(a=1);" * 3_000 + "\n",
    "suppressions": "# noqa: DT201\n" * 50_000,
    "suppressions of many codes": "x = 1  # noqa: " + ", ".join(["DT201"] * 50_000) + "\n",
    "blank lines": "\n" * 1_000_000,
    "continued lines": "x = 1 + \\\n" * 900 + "1\n",
    "names deleted": "".join(f"x{i} = 1\ndel x{i}\n" for i in range(20_000)),
    "globals": "def f():\n  global " + ", ".join(f"x{i}" for i in range(20_000)) + "\n\nf()\n",
    "imports": "".join(f"import a{i}.b.c as d{i}\n" for i in range(10_000)),
    "a long import": "import " + "a." * 20_000 + "a\n",
    "dots": "from " + "." * 100_000 + " import x\n",
    "names imported": "from x import " + ", ".join(f"a{i}" for i in range(50_000)) + "\n",
} | sections(
    """
# -- bases in a circle by another name
class A(Complete): pass
B = A
class A(B): pass
class B(A): pass
A = B
class A(B, A): pass
B.__bases__ = (A,)

# -- an order that no class has
class X(Complete): pass
class Y(Complete): pass
class A(X, Y): pass
class B(Y, X): pass
class C(A, B): pass
class D(C, C): pass
class E(Complete, D): pass

# -- bases that are computed
class A(*[Complete] * 99): pass
class B(type("T", (Complete,), {})): pass
class C((lambda: Complete)()): pass
class D(Complete if x else object): pass
class E(Complete[int][str]["x"]): pass
class F([c for c in [Complete]][0]): pass

# -- a metaclass that does everything
class Meta(type):
    def __new__(mcs, name, bases, space):
        return Meta(name, bases, space)

    def __call__(cls, *args):
        return cls(*args)

    def __getattr__(cls, name):
        return getattr(cls, name)

    def __mro__(cls):
        return [cls] * 10 ** 10

class A(Complete, metaclass=Meta): pass
class B(A, metaclass=A, metaclass2=Meta): pass
A(DreamTrainerConfig()).fit()

# -- a class that makes itself
class A(Complete):
    def __init__(self, config):
        A(config)

    def __init_subclass__(cls):
        class B(A): pass

class C(A): pass

A(DreamTrainerConfig())

# -- attributes that call themselves
class A(Complete):
    def __getattribute__(self, name):
        return self.x

    @property
    def x(self):
        return self.x

    def __call__(self):
        return self()

A(DreamTrainerConfig())()

# -- names in circles
a, b = b, a = a, b
x = y = x
f = lambda: f
f = f()()()
print = print(print)
DreamTrainerConfig = DreamTrainerConfig
Complete = Complete
"""
)


def assert_an_answer(folder: Path, text: str) -> None:
    (folder / "train.py").write_text(text)
    answer = check_apart(folder, "train.py")
    assert answer.is_one, answer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_deep_expressions(folder: Path, expression: str) -> None:
    hook = f"    def training_step(self, batch, batch_idx):\n        return {expression}\n\n"
    text = f"{PRELUDE}class T(Complete):\n{hook}x = {expression}\n"
    assert_an_answer(folder, f"{text}T(DreamTrainerConfig(seed=x)).fit()\n")


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_deep_programs(folder: Path, program: str) -> None:
    assert_an_answer(folder, f"{PRELUDE}{program}{LAUNCH}")


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_deep_programs_in_a_hook(folder: Path, program: str) -> None:
    body = "".join(f"        {line}\n" for line in program.split("\n"))
    hook = f"    def training_step(self, batch, batch_idx):\n{body}        return 1\n"
    assert_an_answer(folder, f"{PRELUDE}class T(Complete):\n{hook}{LAUNCH}")
