"""Expressions that would take all memory or all time, if they were simply computed."""

from pathlib import Path

import pytest
from forked import check_apart
from small_projects import PRELUDE, sections

EXPRESSIONS = """\
10 ** 10 ** 8
1 << 10 ** 10
(1 << 200) << (1 << 200)
2 ** -1 ** 10 ** 10
9 ** 9 ** 9 ** 9
-(2 ** 255) ** 255 ** 2
1.5 ** 10 ** 10
(2 + 3j) ** 10 ** 10
"a" * 10 ** 10
b"a" * 10 ** 10
[0] * 10 ** 10
(0,) * 10 ** 10
10 ** 10 * "ab"
[[0] * 9999] * 9999
("a" * 9999).replace("a", "b" * 9999)
("a" * 9999).replace("a", "b" * 9999).replace("b", "c" * 9999)
("a" * 9999).join(["b"] * 9999)
("a" * 9999).join("b" * 9999)
("a" * 9999).replace("", "b" * 9999)
"a".ljust(10 ** 10)
"a".rjust(10 ** 10).center(10 ** 10).zfill(10 ** 10)
"\\t".expandtabs(10 ** 10)
"%0999999999d" % 1
"%*d" % (999999999, 1)
b"%0999999999d" % 1
"{:>9999999999}".format(1)
"{:{}}".format(1, 9999999999)
"{0:.999999999f}".format(1.0)
format(1, ">9999999999")
format(1.0, ".999999999f")
f"{1:>9999999999}"
f"{1:{'9' * 10}}"
f"{1.0:.999999999f}"
f"{'a' * 9999!r:>{10 ** 10}}"
int("9" * 10 ** 6)
int("9" * 9999)
int("f" * 9999, 16)
int("z" * 9999, 36)
str(int("f" * 9999, 16))
f"{int('f' * 9999, 16)}"
float("9" * 9999)
complex("9" * 9999)
range(10 ** 12)
range(10 ** 30)
range(0, 10 ** 30, 1)
list(range(10 ** 12))
tuple(range(10 ** 30))
set(range(10 ** 12))
dict.fromkeys(range(10 ** 12))
[x for x in range(10 ** 12)]
[x for x in range(999) for y in range(999) for z in range(999)]
{x: y for x in range(9999) for y in range(9999)}
{*range(10 ** 12)}
[*range(10 ** 12)]
(lambda *a: a)(*range(10 ** 12))
sum(range(10 ** 12))
sum([10 ** 70] * 9999)
sum([[0] * 9999] * 9999, [])
sorted(range(10 ** 12), reverse=True)
sorted([0] * 10 ** 10)
max(range(10 ** 12))
min([0] * 9999 for _ in range(10 ** 9))
any(x < 0 for x in range(10 ** 12))
all(x >= 0 for x in range(10 ** 12))
len(range(10 ** 30))
list(zip(range(10 ** 12), range(10 ** 12)))
list(map(str, range(10 ** 12)))
list(filter(None, range(10 ** 12)))
list(reversed(range(10 ** 12)))
list(enumerate(range(10 ** 12)))
round(5, -10 ** 10)
round(5.5, 10 ** 10)
round(1 << 255, -10 ** 9)
pow(10, 10 ** 10)
pow(10 ** 70, 10 ** 9, 10 ** 70)
pow(3, -1, 10 ** 70)
divmod(10 ** 70, 0)
abs(-(10 ** 70)) ** 9999
bytes(10 ** 12)
bytearray(10 ** 12)
math.factorial(10 ** 8)
math.comb(10 ** 8, 10 ** 7)
math.perm(10 ** 8)
math.prod([10 ** 70] * 9999)
math.prod(range(1, 10 ** 9))
math.gcd(10 ** 70, 0)
math.pow(10, 10 ** 10)
math.exp(10 ** 10)
math.log2(0)
math.sqrt(-1)
math.isqrt(10 ** 9999)
math.ceil(float("inf"))
round(float("nan"))
int(float("inf"))
list(itertools.product(range(9999), repeat=9999))
list(itertools.permutations(range(99)))
list(itertools.combinations(range(99), 50))
list(itertools.repeat(1))
list(itertools.count())
list(itertools.cycle([1]))
list(itertools.chain.from_iterable([[0] * 9999] * 9999))
functools.reduce(lambda a, b: a * b, range(1, 10 ** 9), 1)
functools.reduce(lambda a, b: a + a, [1] * 9999, "x")
operator.mul("a", 10 ** 10)
operator.pow(10, 10 ** 10)
eval("9 ** 9 ** 9")
exec("while True: pass")
__import__("os").system("sleep 100")
input()
open("/dev/zero").read()
pathlib.Path("/dev/zero").read_text()
os.read(0, 10)
"a" in "a" * 10 ** 10
[1, 2][10 ** 30]
"abc"[:: 10 ** 30]
([0] * 9999)[-(10 ** 30) : 10 ** 30]
not not "a" * 10 ** 10
~(1 << 10 ** 10)
1 if 10 ** 10 ** 8 else 2
0.1 + 10 ** 400
10 ** 400 / 3
10 ** 300 * 1e300
1e308 * 10 // 1
hash(10 ** 10 ** 8)
"\\ud800"
"\\ud800".encode()
b"\\xff".decode()
chr(10 ** 10)
ord("ab")
"a" < 1
{}[[]]
""".splitlines()

PROGRAMS = sections(
    """
# -- a number that grows in a loop
x = 3
for _ in range(1000):
    for _ in range(1000):
        x = x * 10 ** 70
y = f"{x}"
z = str(x)

# -- a number that grows by powers
x = 2
for _ in range(1000):
    x = x * x

# -- a number that grows by sums
x = 1
for _ in range(1000):
    x += x
y = x ** x

# -- a text that grows
x = "a"
for _ in range(1000):
    x = x.replace("a", "aaaaaaaa")

# -- a text that grows by joining
x = "a"
for _ in range(1000):
    x = x.join([x, x, x])

# -- a text that grows by formatting
x = "a"
for _ in range(1000):
    x = f"{x}{x}"
    x = "%s%s" % (x, x)
    x = "{0}{0}".format(x)

# -- a list that grows
x = [1]
for _ in range(1000):
    x.extend(x)

# -- a list that grows in place
x = [1]
for _ in range(1000):
    x += x
    x *= 2

# -- a list that grows by slices
x = [1]
for _ in range(1000):
    x[len(x):] = x
    x = x[:] + x[:]
    x = [*x, *x]

# -- a mapping that grows
x = {}
for i in range(1000):
    for j in range(1000):
        x[f"{i}{j}"] = x
        x.update({str(i) + str(j): j})

# -- a list of itself, doubled
x = [1]
for _ in range(200):
    x = [x, x]
y = x == x
z = f"{x}"
w = str(x) + repr(x)
v = sorted([x, x])
config = DreamTrainerConfig(seed=x, project=x)

# -- a mapping of itself, doubled
x = {"a": 1}
for _ in range(200):
    x = {"a": x, "b": x}
y = x == dict(x)
config = DreamTrainerConfig(seed=x)

# -- doubled and copied
import copy

x = [1]
for _ in range(200):
    x = [x, x]
y = copy.deepcopy(x)

# -- records of records, doubled
import copy

@dataclass
class Node(DreamTrainerConfig):
    left: object = None
    right: object = None

x = Node()
for _ in range(100):
    x = Node(left=x, right=x)
y = copy.deepcopy(x)
z = replace(x, left=y)
Complete(x).fit()

# -- a record in itself
import copy

config = DreamTrainerConfig()
config.device_parameters = config
config.training_parameters.loop = config
y = copy.deepcopy(config)
z = replace(config)
Complete(config).fit()

# -- a list in itself
import copy

x = []
x.append(x)
x.extend(x)
y = copy.deepcopy(x)
z = x == y
w = f"{x}"
v = sum(x, x)
config = DreamTrainerConfig(seed=x)

# -- a function in its own default
def f(a=lambda: f):
    return f()

x = f()

# -- calls that double
def f0(): return 1
"""
) | {
    "factories that double": "def make0():\n    return DreamTrainerConfig(seed=1)\n\n"
    + "".join(
        f"def make{i}():\n    make{i - 1}()\n    return make{i - 1}()\n\n" for i in range(1, 60)
    ),
    "factories that branch": "import os\n\ndef make0():\n    return DreamTrainerConfig()\n\n"
    + "".join(
        f"def make{i}():\n    return make{i - 1}() if os.environ['A'] else make{i - 1}()\n\n"
        for i in range(1, 60)
    ),
    "many factories": "".join(
        f"def make{i}():\n    for a in range(900):\n        for b in range(900):\n"
        f"            c = a + b\n    return DreamTrainerConfig(seed=c)\n\n"
        for i in range(100)
    ),
    "many trainers": "".join(f"class T{i}(Complete):\n    pass\n\n" for i in range(800))
    + "config = DreamTrainerConfig()\n",
    "many configurations": "".join(f"c{i} = DreamTrainerConfig()\n" for i in range(800)),
    "trainers by configurations": "".join(
        f"class T{i}(Complete):\n    pass\n\nc{i} = DreamTrainerConfig()\n" for i in range(60)
    ),
    "hooks that call each other": "class T(Complete):\n"
    + "".join(
        f"    def m{i}(self):\n        self.m{(i + 1) % 60}(); self.m{(i * 7) % 60}()\n\n"
        for i in range(60)
    )
    + "    def training_step(self, batch, batch_idx):\n        self.m0()\n",
    "hooks that double": "class T(Complete):\n    def m0(self):\n        pass\n\n"
    + "".join(
        f"    def m{i}(self):\n        self.m{i - 1}()\n        self.m{i - 1}()\n\n"
        for i in range(1, 60)
    )
    + "    def training_step(self, batch, batch_idx):\n        self.m59()\n",
    "a hook of many branches": "class T(Complete):\n"
    "    def training_step(self, batch, batch_idx):\n"
    + "".join(f"        if batch[{i}]:\n            x = {i}\n" for i in range(2000))
    + "        return {'loss': x}\n",
    "a hook of nested loops": "class T(Complete):\n"
    "    def training_step(self, batch, batch_idx):\n"
    + "".join(f"{' ' * (8 + i)}for i{i} in batch:\n" for i in range(18))
    + f"{' ' * 30}self.backward(i0)\n",
}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions_that_must_not_be_computed(tmp_path: Path, expression: str) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(
        f"import functools, itertools, math, operator, os, pathlib\n{PRELUDE}"
        f"def make():\n    return DreamTrainerConfig(seed={expression})\n\n"
        f"def training_parameters(x={expression}):\n    return x\n\n"
        f"class T(Complete):\n    y = {expression}\n\n"
        f"    def validation_step(self, batch, batch_idx):\n"
        f"        z = {expression}\n        return {{'loss': z, 'a': {expression}}}\n\n"
        f"config = DreamTrainerConfig(seed={expression})\nx = {expression}\n"
        f"T(make()).fit()\n"
    )
    answer = check_apart(folder, "train.py")
    assert answer.is_one, answer


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_programs_that_must_not_be_run_to_their_end(tmp_path: Path, program: str) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(f"{PRELUDE}{program}\nComplete(DreamTrainerConfig()).fit()\n")
    answer = check_apart(folder, "train.py")
    assert answer.is_one, answer
