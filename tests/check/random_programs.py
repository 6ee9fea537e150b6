# ruff: noqa: E501
"""Random programs that build a configuration, of every construct that evaluation decides.

`<int>` in a form stands for another form of that type, `@` after a name for a number that is
new in each use.
"""

import re
from random import Random
from textwrap import indent

LEAVES = {
    "int": ("0", "1", "2", "3", "7", "-4", "COUNT", "True + 1"),
    "bool": ("True", "False", "FLAG"),
    "str": ("'a'", "'bc'", "''", "' Run-1 '", "NAME"),
    "list": ("[]", "[1, 2, 3]", "[4, 0, 4]", "ITEMS"),
    "dict": ("{}", "{'a': 1}", "{'b': 2, 'a': 5}", "TABLE"),
}

EXPRESSIONS = {
    "int": (
        "<int> + <int>",
        "<int> * 3 - <int>",
        "(<int> // (1 + abs(<int>)))",
        "<int> % 5",
        "(<int> & 15) | (<int> & 7) ^ 2",
        "(~<int>)",
        "-(<int>)",
        "(<int> if <bool> else <int>)",
        "(lambda n, m=<int>: n - m)(<int>)",
        "(lambda *many, **named: len(many) + len(named))(*<list>, **<dict>)",
        "len(<list>)",
        "len(<str>)",
        "len(<dict>)",
        "len({n for n in <list>})",
        "sum(<list>)",
        "sum(n * m for n in <list> for m in <list> if n != m)",
        "sum(n for n, _ in zip(<list>, <list>))",
        "sum(i * n for i, n in enumerate(<list>, start=1))",
        "max(<int>, <int>)",
        "min([*<list>, <int>])",
        "max(<list>, default=<int>)",
        "max(<list>, key=lambda n: -n, default=3)",
        "sorted([<int>, <int>, 5])[1]",
        "int('1' + str(abs(<int>)))",
        "int(str(abs(<int>) % 10), 16)",
        "round(<int> / 3)",
        "divmod(<int>, 7)[1]",
        "pow(2, abs(<int>) % 5)",
        "<dict>.get('a', <int>)",
        "(<dict> | {'z': <int>})['z']",
        "[<int>, <int>][-1]",
        "([*<list>, <int>])[len(<list>):][0]",
        "{True: <int>, False: <int>}[<bool>]",
        "next((n for n in <list> if n > 1), <int>)",
        "next(iter([<int>, 2]))",
        "(n@ := <int>) + n@",
        "functools.reduce(lambda a, b: a * 2 + b, <list>, <int>)",
        "functools.reduce(operator.add, <list>, 0)",
        "math.prod(<list>)",
        "math.ceil(<int> / 2)",
        "sum(itertools.chain(<list>, [<int>]))",
        "len(list(itertools.product(<list>, 'ab')))",
        "sum(itertools.accumulate(<list>))",
        "Level.HIGH.value + <int>",
        "Level(2).value",
        "Level['LOW'].value",
        "sum(level.value for level in Level)",
        "Point(<int>, y=<int>).x",
        "Point(<int>)[1]",
        "Point(1, <int>)._replace(x=<int>).x",
        "Shape(size=<int>).area",
        "Shape(size=<int>).grown(<int>).size",
        "Shape.unit().size",
        "Cube(size=<int>).area",
        "Cube(size=<int>).corner",
        "getattr(Shape(size=<int>), 'size', 1)",
        "getattr(Shape(size=1), 'nothing', <int>)",
        "dataclasses.asdict(Shape(size=<int>))['size']",
        "dataclasses.replace(Shape(size=1), size=<int>).size",
        "functools.partial(combine, <int>)(b=<int>)",
        "combine(<int>)",
        "combine(*[<int>, <int>])",
        "combine(**{'a': <int>, 'b': <int>})",
        "combine(<int>, c=<int>, d=<int>)",
        "factorial(abs(<int>) % 3)",
        "counter()()",
        "sum(countdown(abs(<int>) % 4))",
        "memo(<int>)",
        "REGISTRY['double'](<int>)",
        "Box.inner.depth",
        "Window(<int>).half",
        "hash(<int>) * 0",
        "<str>.count('a')",
        "(<str> + 'x').index('x')",
        "bool(<int>) + 0",
        "ord('a')",
    ),
    "bool": (
        "not <bool>",
        "<bool> and <bool>",
        "(<bool> or <bool>)",
        "<int> < <int>",
        "-2 <= <int> < 5",
        "<int> == <int>",
        "<int> in <list>",
        "<str> not in ('a', 'b')",
        "<str> == <str>",
        "any(n > 2 for n in <list>)",
        "all(<list>)",
        "any([<bool>, <bool>])",
        "isinstance(<int>, int)",
        "isinstance(<str>, (int, str))",
        "isinstance(Cube(size=1), Shape)",
        "issubclass(Cube, Shape)",
        "hasattr(Shape(size=1), 'size')",
        "callable(combine)",
        "<str>.startswith(('a', 'b'))",
        "'a' in <dict>",
        "<list> == <list>",
        "bool(<dict>)",
        "Level.LOW is Level.LOW",
        "Level.LOW == Level.HIGH",
        "{1, 2} <= {*<list>, 1}",
        "<bool> is True",
        "<int> is not None",
        "'b' < <str>",
        "isinstance(<int>, Number)",
    ),
    "str": (
        "<str> + <str>",
        "<str> * 2",
        "f'{<int>}-{<str>}'",
        "f'{<int>:04d}|{<str>!r:>6}'",
        "f'{<int> / 4:.2f}'",
        "f'{<int>:>{3}}'",
        "f'{<int>=}'[-1]",
        "'%s-%d' % (<str>, <int>)",
        "'{}:{n}'.format(<str>, n=<int>)",
        "<str>.upper().strip()",
        "<str>.replace('a', <str>)",
        "<str>[::-1]",
        "<str>[1:]",
        "'-'.join(str(n) for n in <list>)",
        "'-'.join(<dict>)",
        "('a' if <bool> else <str>)",
        "repr(<list>)",
        "str(<bool>)",
        "(<str> or 'none')",
        "<str>.title().rjust(4, '.')",
        "'a,b,c'.split(',')[<int> % 3]",
        "'k=v'.partition('=')[2]",
        "Level.HIGH.name",
        "Mode.FAST.value",
        "str(Mode.FAST.value)",
        "os.path.join('runs', <str> + 'x')",
        "type(Shape(size=1)).__name__",
        "combine.__name__",
        "sorted(<dict>)[0] if <dict> else 'no'",
        "chr(97 + <int> % 20)",
        "{n: str(n) for n in range(6)}[<int> % 6]",
    ),
    "list": (
        "[<int>, <int>]",
        "[*<list>, <int>]",
        "<list> + <list>",
        "<list>[:2]",
        "<list>[::-1]",
        "<list> * 2",
        "list(range(<int> % 5))",
        "list(range(5, 0, -2))",
        "[n + 1 for n in <list>]",
        "[n for n in <list> if n % 2]",
        "[n * m for n, m in zip(<list>, <list>)]",
        "[n for part in (<list>, <list>) for n in part]",
        "[[n for n in (m, 1)][0] for m in <list>]",
        "[a + b for a, (b, _) in enumerate([(<int>, 1), (2, 3)])]",
        "[last for *_, last in ([1, <int>], <list> + [2])]",
        "list(map(lambda n: n * 2, <list>))",
        "list(map(lambda n, m: n - m, <list>, <list>))",
        "list(map(abs, <list>))",
        "list(filter(None, <list>))",
        "list(filter(lambda n: n > 1, <list>))",
        "list(reversed(<list>))",
        "sorted(<list>)",
        "sorted(<list>, key=lambda n: n % 3, reverse=True)",
        "sorted({*<list>, 1})",
        "list(<dict>.values())",
        "[v for _, v in <dict>.items()]",
        "[v for k, v in sorted(<dict>.items())]",
        "list(itertools.chain.from_iterable([<list>, <list>]))",
        "list(dict.fromkeys(<list>))",
        "(<list> or [<int>])",
        "copy.copy(<list>)",
        "copy.deepcopy(<list>)",
        "list(countdown(2))",
        "[f(2) for f in (lambda n: n, combine, abs)]",
        "(lambda *rest: list(rest))(*<list>, <int>)",
        "list(Point(<int>))",
        "[*(n for n in <list>)]",
        "[*range(3)]",
        "<list>.copy()",
    ),
    "dict": (
        "{'a': <int>, 'c': <int>}",
        "{**<dict>, 'a': <int>}",
        "<dict> | <dict>",
        "dict(<dict>, b=<int>)",
        "dict(zip('abc', <list>))",
        "dict([('a', <int>), ('d', 1)])",
        "{k: v + 1 for k, v in <dict>.items()}",
        "{str(n): n for n in <list> if n}",
        "{k: v for d in (<dict>, <dict>) for k, v in d.items()}",
        "dict.fromkeys('ab', <int>)",
        "(lambda **named: named)(a=<int>, **{'q': 1})",
        "dict(sorted(<dict>.items()))",
        "<dict>.copy()",
        "vars(Shape(size=<int>))",
    ),
}
"""Type -> expressions of that type."""

STATEMENTS = (
    ("int", "r@ = <int>"),
    ("int", "r@: int = <int>"),
    ("int", "r@, s@ = <int>, <int>\nr@, s@ = s@, r@"),
    ("int", "(r@, *s@), t@ = [<int>, <int>], 3"),
    ("list", "r@ = [1]\nr@ += <list>\nr@.append(<int>)"),
    ("list", "r@ = <list>[:]\nr@.sort()\nr@.insert(0, <int>)"),
    ("list", "r@ = [<int>, 2, 3]\nr@[0] = <int>\nr@[1:2] = <list>\ndel r@[-1]"),
    ("list", "r@ = [5, <int>]\nr@.reverse()\nr@.extend(n for n in <list>)"),
    ("list", "r@ = [*<list>, 6]\ns@ = r@.pop()\nr@ = r@ * 1"),
    ("dict", "r@ = dict(<dict>)\nr@.update(a=<int>)\nr@.setdefault('a', 9)\nr@.pop('b', None)"),
    ("dict", "r@ = {}\nfor k, v in <dict>.items():\n    r@[k] = v * 2"),
    ("dict", "r@ = {'a': 1, 'x': <int>}\nr@['a'] += <int>\ndel r@['x']"),
    ("dict", "r@ = {'n': {'m': <int>}}\nr@['n']['m'] += 1\nr@ = r@['n']"),
    (
        "int",
        "r@ = 0\nfor n in <list>:\n    if n > 3:\n        break\n    r@ += n\nelse:\n    r@ = -1",
    ),
    ("int", "r@ = 0\nfor n in range(4):\n    if n == <int>:\n        continue\n    r@ += n"),
    ("int", "r@ = 10\nwhile r@ > <int> % 6:\n    r@ -= 2\nelse:\n    r@ += 100"),
    ("int", "r@ = 1\nif <bool>:\n    r@ = <int>\nelif <bool>:\n    r@ = <int>\nelse:\n    r@ = 4"),
    ("int", "r@ = 0\nfor i, (a, b) in enumerate(zip(<list>, <list>)):\n    r@ += i * a - b"),
    ("int", "try:\n    r@ = {'a': 1}['b']\nexcept KeyError:\n    r@ = <int>"),
    ("int", "try:\n    r@ = int('x')\nexcept (TypeError, ValueError):\n    r@ = <int>"),
    ("int", "try:\n    r@ = 1 // 0\nexcept ZeroDivisionError as error:\n    r@ = <int>"),
    (
        "int",
        "r@ = 1\ntry:\n    r@ = [1][4]\nexcept LookupError:\n    r@ += 1\nfinally:\n    r@ += 2",
    ),
    ("int", "try:\n    r@ = <int>\nexcept ValueError:\n    r@ = 9\nelse:\n    r@ += 1"),
    (
        "int",
        "r@ = 1\ntry:\n    if <bool>:\n        raise ValueError('no')\n    r@ = 2\n"
        "except KeyError:\n    r@ = 3\nexcept ValueError:\n    r@ = 4",
    ),
    ("int", "r@ = 1\nwith suppress(KeyError):\n    r@ = 2\n    {}['a']\n    r@ = 3"),
    ("int", "with scaled(<int>) as r@:\n    r@ += 1"),
    ("int", "log@ = []\nwith noting(log@):\n    log@.append(2)\nr@ = log@[-1] + len(log@)"),
    (
        "int",
        "match <int>:\n    case 0:\n        r@ = 5\n    case 1 | 2:\n        r@ = 6\n"
        "    case n if n > 4:\n        r@ = n\n    case _:\n        r@ = 7",
    ),
    (
        "int",
        "match <list>:\n    case []:\n        r@ = 0\n    case [one]:\n        r@ = one\n"
        "    case [first, *rest]:\n        r@ = first + len(rest)",
    ),
    (
        "int",
        "match <dict>:\n    case {'a': int(value), **rest}:\n        r@ = value + len(rest)\n"
        "    case {}:\n        r@ = -1",
    ),
    (
        "int",
        "match Shape(size=<int>):\n    case Cube():\n        r@ = 1\n"
        "    case Shape(size=0 | 1 as n):\n        r@ = n\n    case Shape(size=n):\n        r@ = n * 2",
    ),
    (
        "int",
        "match (<int>, <str>):\n    case (0, _):\n        r@ = 1\n    case (n, 'a' | 'bc'):\n"
        "        r@ = n\n    case (_, str()):\n        r@ = 3",
    ),
    (
        "int",
        "match Level.HIGH:\n    case Level.LOW:\n        r@ = 1\n    case Level.HIGH:\n        r@ = 2",
    ),
    (
        "int",
        "def f@(n, *, m=<int>):\n    if n > 2:\n        return m\n    return n\nr@ = f@(<int>)",
    ),
    (
        "int",
        "def f@():\n    t = 1\n    def g():\n        nonlocal t\n        t += <int>\n    g()\n    g()\n"
        "    return t\nr@ = f@()",
    ),
    ("int", "def f@(n=[]):\n    n.append(1)\n    return len(n)\nf@()\nr@ = f@() + f@([])"),
    ("list", "def f@():\n    yield <int>\n    yield from <list>\n    return 1\nr@ = list(f@())"),
    (
        "list",
        "def f@(n):\n    while n > 0:\n        yield n\n        n -= 2\nr@ = [m + 1 for m in f@(5)]",
    ),
    (
        "int",
        "def f@(g):\n    @functools.wraps(g)\n    def inner(*a, **k):\n        return g(*a, **k) + 1\n"
        "    return inner\n@f@\ndef h@(n):\n    return n * 2\nr@ = h@(<int>)",
    ),
    (
        "int",
        "def f@(times):\n    def mark(g):\n        return lambda n: g(n) * times\n    return mark\n"
        "@f@(<int>)\ndef h@(n):\n    return n\nr@ = h@(3)",
    ),
    (
        "int",
        "class C@:\n    n = <int>\n    def __init__(self, m=2):\n        self.m = m + self.n\n"
        "    def __call__(self, k):\n        return self.m + k\nr@ = C@()(<int>)",
    ),
    (
        "int",
        "class C@(Shape):\n    @property\n    def area(self):\n        return super().area + <int>\n"
        "r@ = C@(size=2).area",
    ),
    (
        "int",
        "class C@:\n    made = 0\n    def __init__(self):\n        type(self).made += 1\n"
        "C@()\nC@()\nr@ = C@.made",
    ),
    (
        "int",
        "class C@:\n    def __getitem__(self, n):\n        return n + 1\n    def __len__(self):\n"
        "        return 4\nr@ = C@()[<int>] + len(C@())",
    ),
    ("int", "s@ = Shape(size=<int>)\nsetattr(s@, 'size', <int>)\nr@ = s@.size"),
    ("int", "s@ = Shape(size=1)\nt@ = s@\nt@.size += <int>\nr@ = s@.size"),
    ("list", "r@ = <list>[:]\ns@ = r@\ns@.append(<int>)"),
    ("int", "s@ = copy.deepcopy({'a': [<int>]})\ns@['a'].append(1)\nr@ = len(s@['a'])"),
    ("int", "assert isinstance(<int>, int)\nr@ = <int>"),
    ("int", "r@ = 1\nif (m@ := <int>) > 2:\n    r@ = m@"),
    ("int", "g@ = (n for n in [<int>, 2, 3])\nnext(g@)\nr@ = sum(g@) + sum(g@)"),
    ("list", "g@ = iter(<list>)\nr@ = [*zip(g@, g@)]\nr@ = [a + b for a, b in r@]"),
    ("str", "r@ = <str>\nr@ += f'{<int>}'"),
    ("bool", "r@ = <bool>\nr@ |= <bool>"),
    ("int", "f@ = [lambda n, k=k: n + k for k in range(3)]\nr@ = f@[<int> % 3](2)"),
    ("int", "f@ = [lambda n: n + k for k in range(3)]\nr@ = f@[<int> % 3](2)"),
    ("int", "import math as m@\nr@ = m@.floor(<int> / 2)"),
    ("int", "from operator import add as a@\nr@ = a@(<int>, 1)"),
    ("int", "s@ = {1, 2} | {<int>}\ns@.add(5)\ns@.discard(1)\nr@ = len(s@)"),
    (
        "int",
        "s@ = []\nfor row in [[1, 2], <list>]:\n    for n in row:\n        if n == 2:\n"
        "            break\n        s@.append(n)\nr@ = len(s@)",
    ),
    ("int", "bump(<int>)\nr@ = 2"),
)
"""Type of the variable `r@` -> statements that set it."""

OPEN_STATEMENTS = (
    (
        "int",
        "from types import SimpleNamespace as n@\ns@ = n@(a=<int>)\ns@.b = 2\nr@ = s@.a + s@.b",
    ),
    (
        "int",
        "from collections import defaultdict as d@\ns@ = d@(int)\ns@['a'] += <int>\nr@ = s@['a']",
    ),
    ("int", "r@ = int(os.environ.get('ABSENT', '3'))"),
    ("int", "import sys\nr@ = 4\nif len(sys.argv) > 99:\n    r@ = 5"),
    ("int", "r@ = 1\nif 'ABSENT' not in os.environ:\n    r@ = <int>\nelse:\n    r@ = 7"),
    ("int", "try:\n    r@ = os.environ['ABSENT']\n    r@ = 8\nexcept KeyError:\n    r@ = 9"),
    ("int", "r@ = 0\nfor _ in os.environ.get('ABSENT', 'abc'):\n    r@ += 1"),
    ("dict", "r@ = {'a': 1}\nr@[os.environ.get('ABSENT', 'b')] = 2"),
    ("dict", "r@ = {'a': 1}\nr@.update({os.environ.get('ABSENT', 'a'): 2})"),
    ("list", "r@ = [1]\nr@.extend(os.environ.get('ABSENT', 'a').split())\nr@ = [len(r@)]"),
    ("list", "r@ = [3, 1]\nrandom.Random(1).shuffle(r@)"),
    ("int", "s@ = Shape(size=2)\nsetattr(s@, os.environ.get('ABSENT', 'size'), 5)\nr@ = s@.size"),
    ("int", "r@ = 1\nwhile r@ < len(os.environ.get('ABSENT', 'abcd')):\n    r@ += 1"),
    (
        "int",
        "r@ = 1\nmatch os.environ.get('ABSENT'):\n    case None:\n        r@ = 2\n"
        "    case _:\n        r@ = 3",
    ),
    ("int", "r@ = 1\nwith suppress(KeyError):\n    os.environ['ABSENT']\n    r@ = 2"),
    ("int", "try:\n    import absent_package\n    r@ = 1\nexcept ImportError:\n    r@ = 2"),
    (
        "int",
        "def f@(n):\n    n.append(1)\ns@ = [1]\nlist(map(f@, [s@] * len(os.environ.get('A', 'a'))))\n"
        "r@ = len(s@)",
    ),
    (
        "int",
        "def f@():\n    if os.environ.get('ABSENT'):\n        return 1\n    return 2\nr@ = f@()",
    ),
)
"""What no source decides; the real value has to be among the paths."""

PRELUDE = """
import copy, dataclasses, functools, itertools, math, operator, os, random
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace, InitVar
from enum import Enum, IntEnum
from pathlib import Path
from typing import ClassVar, NamedTuple

from dream_trainer import DreamTrainerConfig
from dream_trainer.configs import DeviceParameters, LoggingParameters, TrainingParameters

COUNT, FLAG, NAME = 4, True, "run"
ITEMS = [2, 5, 2]
TABLE = {"a": 3, "k": 1}
REGISTRY = {}
Number = (int, float)

def register(name):
    def add(function):
        REGISTRY[name] = function
        return function
    return add

@register("double")
def double(n):
    return n * 2

class Level(Enum):
    LOW = 1
    HIGH = 2

class Mode(str, Enum):
    FAST = "fast"

class Point(NamedTuple):
    x: int
    y: int = 2

@dataclass
class Shape:
    size: int
    sides: ClassVar[int] = 4

    @property
    def area(self):
        return self.size * self.size * self.sides

    def grown(self, by):
        return type(self)(size=self.size + by)

    @classmethod
    def unit(cls):
        return cls(1)

@dataclass
class Cube(Shape):
    corner: int = field(init=False)

    def __post_init__(self):
        self.corner = self.size + 8

    @property
    def area(self):
        return super().area + 1

@dataclass
class Window:
    whole: InitVar[int]
    half: int = field(init=False, default=0)

    def __post_init__(self, whole):
        self.half = whole // 2

class Box:
    class inner:
        depth = 3

def combine(a, b=2, *rest, c=1, **more):
    return a * 2 + b - c + len(rest) + sum(more.values())

def factorial(n):
    return 1 if n < 2 else n * factorial(n - 1)

def counter():
    total = 0
    def step(by=1):
        nonlocal total
        total += by
        return total
    step()
    return step

def countdown(n):
    while n:
        yield n
        n -= 1

@functools.lru_cache(maxsize=None)
def memo(n):
    return n + 1

@contextmanager
def scaled(n):
    yield n * 2

@contextmanager
def noting(log):
    log.append(1)
    try:
        yield
    finally:
        log.append(3)

bumped = 0
def bump(by):
    global bumped
    bumped += by
"""

CONFIGS = """
@dataclass(kw_only=True)
class Config(DreamTrainerConfig):
    number: int = 1
    text: str = "x"
    items: list = field(default_factory=lambda: [1])
    table: dict = field(default_factory=dict)
    flag: bool = False

@dataclass(kw_only=True)
class Child(Config):
    number: int = <int>
    derived: int = field(init=False)
    scale: InitVar[int] = <int>

    def __post_init__(self, scale):
        self.derived = self.number * scale

    @classmethod
    def made(cls, **options):
        return cls(**{"number": <int>, **options})

def parallel(kind, **options):
    kinds = {"fsdp": DeviceParameters.FSDP, "single": DeviceParameters.SINGLE_DEVICE}
    return kinds[kind](**options)
"""

MAKES = (
    "config = Config(number=<int>, text=<str>, items=<list>, table=<dict>, flag=<bool>)",
    "config = Child(number=<int>, items=<list>)",
    "config = Child.made(text=<str>)",
    "config = Child.made(flag=<bool>, scale=<int>)",
    "config = replace(Config(number=<int>), text=<str>, table=<dict>)",
    "config = functools.partial(Config, number=<int>)(text=<str>)",
    "config = Config(**dict(number=<int>, text=<str>))",
    "config = copy.deepcopy(Config(items=<list>))\nconfig.number = <int>",
    "config = [Config, Child][<bool>](number=<int>)",
    "config = (Child if <bool> else Config)(number=<int>, table=<dict>)",
)

CHANGES = (
    "config.device_parameters = DeviceParameters.FSDP(compile_model=<bool>)",
    "config.device_parameters = DeviceParameters(dp_shard=1 + abs(<int>) % 8, force_ddp=<bool>)",
    "config.device_parameters = DeviceParameters(tensor_parallel=<int>, loss_parallel=<bool>)",
    "config.device_parameters = parallel('fsdp', cpu_offload=<bool>)",
    "config.device_parameters = replace(config.device_parameters, compile_model=<bool>)",
    "config.device_parameters.compile_model = <bool>",
    "config.training_parameters = TrainingParameters(n_epochs=<int>)",
    "config.training_parameters.max_steps = <int>",
    "for name, value in {'seed': <int>, 'group': <str>}.items():\n    setattr(config, name, value)",
    "config.logging_parameters = LoggingParameters(root_dir=<str>)",
    "config.project = <str>",
    "config.items.append(<int>)",
    "config.table['t'] = <int>",
    "config = replace(config, number=<int>)",
    "config.number += bumped",
)


class Writer:
    """Writes one program."""

    def __init__(self, seed: int, undecidable: bool) -> None:
        self.random = Random(seed)
        self.undecidable = undecidable
        self.used = 0
        self.variables: list[tuple[str, str]] = []

    def fill(self, form: str, depth: int) -> str:
        self.used += 1
        form = re.sub(r"(?<=\w)@", str(self.used), form)
        return re.sub(r"<(\w+)>", lambda found: self.expression(found[1], depth - 1), form)

    def expression(self, kind: str, depth: int) -> str:
        known = [name for type_, name in self.variables if type_ == kind]
        if known and self.random.random() < 0.3:
            return self.random.choice(known)
        if depth <= 0 or self.random.random() < 0.2:
            return f"({self.random.choice(LEAVES[kind])})"
        return f"({self.fill(self.random.choice(EXPRESSIONS[kind]), depth)})"

    def statements(self, count: int) -> str:
        lines = []
        for _ in range(count):
            forms = STATEMENTS
            if self.undecidable and self.random.random() < 0.4:
                forms = OPEN_STATEMENTS
            kind, form = self.random.choice(forms)
            name = f"r{self.used + 1}"
            lines.append(self.fill(form, 3))
            self.variables.append((kind, name))
        return "\n".join(lines)

    def make(self) -> str:
        before = list(self.variables)
        body = [self.statements(self.random.randint(0, 3))]
        body.append(self.fill(self.random.choice(MAKES), 3))
        body += [
            self.fill(self.random.choice(CHANGES), 2) for _ in range(self.random.randint(0, 3))
        ]
        self.variables = before
        text = "\n".join([*body, "return config"])
        return "def make():\n" + indent(text, "    ") + "\n"


def program(seed: int, undecidable: bool = False) -> dict[str, str]:
    """File -> source of a program whose train.py has `make()`."""
    writer = Writer(seed, undecidable)
    shared = PRELUDE + writer.statements(writer.random.randint(0, 2))
    configs = writer.fill(CONFIGS, 2)
    train = writer.statements(writer.random.randint(0, 2)) + "\n" + writer.make()
    if writer.random.random() < 0.3:
        return {"train.py": f"{shared}\n{configs}\n{train}"}
    return {"shared.py": f"{shared}\n{configs}\n", "train.py": f"from shared import *\n{train}"}
