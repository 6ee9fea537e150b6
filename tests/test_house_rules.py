"""The rules that keep the source small and its layers apart; see the design document.

Each check turns one source file into faults, is tried on samples, and is then held
against every file of `dream_scaffold` and `runtime/dream_trainer`.
"""

import ast
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCAFFOLD = ROOT / "dream_scaffold"
RUNTIME = ROOT / "runtime" / "dream_trainer"

MAX_FILE_LINES = 320
MAX_FUNCTION_LINES = 60
MAX_LINES = {
    "simulate": 1_200,
    "checkpoint": 2_500,
    "callbacks": 2_800,
    "loggers": 600,
    "report": 500,
    "checks": 850,
    "": 5_500,
}
"""Of the runtime's rooms, which a reader can take one by one, and of all the rest."""

VAGUE_NAMES = {"dist", "helpers", "common", "base", "core", "manager", "misc", "util", "utils"}
DEMANDED_NAMES = {"dream_trainer/trainer/base.py", "dream_trainer/utils"}
"""Vague names that a public import path demands."""

LAYERS: tuple[tuple[str, ...], ...] = (
    ("configs", "contract"),
    ("mesh", "processes"),
    ("world",),
    (
        "streams",
        "materialize",
        "seeding",
        "parallel",
        "optimizers",
        "position",
        "metrics",
        "data",
        "checks",
    ),
    ("callbacks.callback",),
    ("lifecycle", "loop"),
    ("checkpoint",),
    ("trainer",),
    ("callbacks", "loggers", "report", "simulate"),
    ("utils",),
)
"""The runtime from bottom to top: a module imports from its own layer and from below."""

LAYER_EXCEPTIONS = {("trainer.dream", "callbacks")}
"""The trainer with batteries builds its default callbacks."""


@dataclass(frozen=True)
class Import:
    """One imported module; a name inside its own package lacks the package's name."""

    target: str
    line: int
    relative: bool = False
    typing_only: bool = False
    in_function: bool = False


@dataclass
class Source:
    """One Python file: its package's name, its dotted name inside the package, its text."""

    package: str
    module: str
    text: str
    is_package: bool = False
    shown: str = "sample.py"
    tree: ast.Module = field(init=False)

    def __post_init__(self) -> None:
        self.tree = ast.parse(self.text)

    @cached_property
    def imports(self) -> list[Import]:
        return list(self._imports(self.tree, typing_only=False, in_function=False))

    def _imports(self, node: ast.AST, typing_only: bool, in_function: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            guarded = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            typing = typing_only or (guarded and child in node.body)  # type: ignore[attr-defined]
            inner = in_function or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            if isinstance(child, (ast.Import, ast.ImportFrom)):
                for target, relative in self._targets(child):
                    yield Import(target, child.lineno, relative, typing, inner)
            yield from self._imports(child, typing, inner)

    def _targets(self, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, bool]]:
        if isinstance(node, ast.Import):
            yield from ((alias.name, False) for alias in node.names)
        elif not node.level:
            yield node.module or "", False
        else:
            parts = self.module.split(".") if self.module else []
            ups = node.level - self.is_package
            anchor = parts[: len(parts) - ups]
            if node.module:
                yield ".".join([*anchor, node.module]), True
            else:
                yield from ((".".join([*anchor, alias.name]), True) for alias in node.names)

    @property
    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield node


def sources(folder: Path) -> list[Source]:
    found = []
    for path in sorted(folder.rglob("*.py")):
        is_package = path.name == "__init__.py"
        inside = path.relative_to(folder).with_suffix("")
        parts = inside.parts[:-1] if is_package else inside.parts
        shown = str(path.relative_to(folder.parent))
        found.append(Source(folder.name, ".".join(parts), path.read_text(), is_package, shown))
    return found


def is_in(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(f"{prefix}.")


def layer(module: str) -> int:
    """The longest matching entry decides: `callbacks.callback` lies below `callbacks`."""
    matches = [
        (len(prefix), index)
        for index, prefixes in enumerate(LAYERS)
        for prefix in prefixes
        if is_in(module, prefix)
    ]
    return max(matches)[1] if matches else len(LAYERS)  # The package itself is on top.


# Checks: one source -> its faults, each as "line: what".


def upward_imports(source: Source) -> Iterator[str]:
    for item in source.imports:
        if not item.relative or item.typing_only:
            continue
        if (source.module, item.target) in LAYER_EXCEPTIONS:
            continue
        if layer(item.target) > layer(source.module):
            yield f"{item.line}: {source.module} imports {item.target}, which lies above it"


def callbacks_of_callbacks(source: Source) -> Iterator[str]:
    if not source.module.startswith("callbacks.") or source.module == "callbacks.callback":
        return
    for item in source.imports:
        allowed = item.target == "callbacks.callback" or item.typing_only
        if is_in(item.target, "callbacks") and not allowed:
            yield f"{item.line}: a callback imports {item.target}"
        if is_in(item.target, "trainer") and not item.typing_only:
            yield f"{item.line}: a callback imports {item.target} outside TYPE_CHECKING"


def heavy_imports_in_the_hinge(source: Source) -> Iterator[str]:
    if not (is_in(source.module, "configs") or source.module == "contract"):
        return
    for item in source.imports:
        top = item.target.partition(".")[0]
        if not item.relative and not item.typing_only and top not in sys.stdlib_module_names:
            yield f"{item.line}: the hinge imports {item.target}"


def absolute_imports_of_itself(source: Source) -> Iterator[str]:
    for item in source.imports:
        if not item.relative and is_in(item.target, source.package):
            yield f"{item.line}: {item.target} is not imported relatively"


RUN_BY_PATH = ("doctor.torch_probe", "doctor.smoke_worker")
"""Scripts of `dream doctor` for processes of their own: nothing imports them."""


def imports_of_torch_or_the_runtime(source: Source) -> Iterator[str]:
    if source.module in RUN_BY_PATH:
        return
    for item in source.imports:
        top = item.target.partition(".")[0]
        if item.relative:
            continue
        if top == "torch" or (top == "dream_trainer" and not item.typing_only):
            yield f"{item.line}: imports {item.target}"


def copier_at_module_level(source: Source) -> Iterator[str]:
    for item in source.imports:
        is_copier = not item.relative and is_in(item.target, "copier")
        if is_copier and not item.in_function and not item.typing_only:
            yield f"{item.line}: imports {item.target} outside a function"


def imports_of_the_command_line(source: Source) -> Iterator[str]:
    for item in source.imports:
        if item.relative and item.target == "cli" and source.module != "__main__":
            yield f"{item.line}: imports the command line"


def rules_that_know_too_much(source: Source) -> Iterator[str]:
    if not source.module.startswith("check.rules."):
        return
    for item in source.imports:
        top = item.target.partition(".")[0]
        known = item.relative and item.target in ("check.facts", "check.findings")
        if not known and (item.relative or top not in sys.stdlib_module_names):
            yield f"{item.line}: a rule imports {item.target}"


def untyped_functions(source: Source) -> Iterator[str]:
    methods = {
        id(child)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef)
        for child in node.body
    }
    for function in source.functions:
        arguments = function.args
        named = [*arguments.posonlyargs, *arguments.args]
        if id(function) in methods and not _is_static(function):
            named = named[1:]
        extra = [item for item in (arguments.vararg, arguments.kwarg) if item is not None]
        missing = [a.arg for a in [*named, *arguments.kwonlyargs, *extra] if a.annotation is None]
        if function.returns is None:
            missing.append("return")
        if missing:
            yield f"{function.lineno}: {function.name} lacks types: {', '.join(missing)}"


def _is_static(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(ast.unparse(item) == "staticmethod" for item in function.decorator_list)


def assertions(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assert):
            yield f"{node.lineno}: assert {ast.unparse(node.test)}"


def long_functions(source: Source) -> Iterator[str]:
    for function in source.functions:
        lines = (function.end_lineno or 0) - function.lineno + 1
        if lines > MAX_FUNCTION_LINES:
            yield f"{function.lineno}: {function.name} has {lines} lines"


def long_files(source: Source) -> Iterator[str]:
    lines = len(source.text.splitlines())
    if lines > MAX_FILE_LINES:
        yield f"1: {lines} lines"


def missing_docstrings(source: Source) -> Iterator[str]:
    if source.text.strip() and not ast.get_docstring(source.tree):
        yield "1: the module does not say what it is"


def vague_names(source: Source) -> Iterator[str]:
    path = Path(source.shown)
    for part in [path, *path.parents]:
        if part.stem in VAGUE_NAMES and str(part) not in DEMANDED_NAMES:
            yield f"1: {part} has a name that says nothing"


Check = Callable[[Source], Iterable[str]]

EVERYWHERE: list[Check] = [
    absolute_imports_of_itself,
    untyped_functions,
    assertions,
    long_functions,
    long_files,
    missing_docstrings,
    vague_names,
]
OF_THE_RUNTIME: list[Check] = [
    upward_imports,
    callbacks_of_callbacks,
    heavy_imports_in_the_hinge,
]
OF_THE_SCAFFOLD: list[Check] = [
    imports_of_torch_or_the_runtime,
    copier_at_module_level,
    imports_of_the_command_line,
    rules_that_know_too_much,
]


def faults(check: Check, folder: Path) -> list[str]:
    return [f"{source.shown}:{fault}" for source in sources(folder) for fault in check(source)]


@pytest.mark.parametrize("check", [*EVERYWHERE, *OF_THE_RUNTIME], ids=lambda check: check.__name__)
def test_runtime(check: Check) -> None:
    assert faults(check, RUNTIME) == []


@pytest.mark.parametrize(
    "check", [*EVERYWHERE, *OF_THE_SCAFFOLD], ids=lambda check: check.__name__
)
def test_scaffold(check: Check) -> None:
    assert faults(check, SCAFFOLD) == []


def test_every_module_of_the_runtime_has_a_layer() -> None:
    tops = {source.module.partition(".")[0] for source in sources(RUNTIME)} - {""}
    assert tops <= {prefix.partition(".")[0] for prefixes in LAYERS for prefix in prefixes}


def test_size_of_the_runtime() -> None:
    lines = dict.fromkeys(MAX_LINES, 0)
    for source in sources(RUNTIME):
        room = source.module.partition(".")[0]
        lines[room if room in lines else ""] += len(source.text.splitlines())
    assert all(0 < lines[room] <= most for room, most in MAX_LINES.items()), lines


def edges(files: list[Source]) -> dict[str, set[str]]:
    """Module -> the modules that importing it runs, packages on the way included."""
    known = {source.module for source in files}
    graph: dict[str, set[str]] = {}
    for source in files:
        reached = graph.setdefault(source.module, set())
        for item in source.imports:
            if not item.relative or item.typing_only:
                continue
            parts = item.target.split(".")
            names = [".".join(parts[: end + 1]) for end in range(len(parts))]
            reached |= {n for n in names if n in known and not is_in(source.module, n)}
            reached |= {item.target} & known - {source.module}
    return graph


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """The modules along some import cycle, the first one repeated; empty where there is none."""
    done: set[str] = set()

    def walk(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        for target in sorted(graph.get(module, ())):
            if found := walk(target, [*path, module]):
                return found
        done.add(module)
        return []

    return next((found for module in sorted(graph) if (found := walk(module, []))), [])


@pytest.mark.parametrize("folder", [RUNTIME, SCAFFOLD], ids=["runtime", "scaffold"])
def test_no_import_cycle(folder: Path) -> None:
    assert cycle(edges(sources(folder))) == []


# The checks themselves, on samples.


def found(check: Check, text: str, module: str = "sample", shown: str = "sample.py") -> list[str]:
    package = "dream_scaffold" if check in OF_THE_SCAFFOLD else "dream_trainer"
    return list(check(Source(package, module, text, shown=shown)))


@pytest.mark.parametrize(
    ("check", "module", "text"),
    [
        (upward_imports, "loop", "from .data import move\nfrom .lifecycle import x\nimport torch"),
        (upward_imports, "loop", "if TYPE_CHECKING:\n    from .trainer import BaseTrainer"),
        (upward_imports, "callbacks.ema", "from ..trainer import X\nfrom .callback import Y"),
        (upward_imports, "trainer.dream", "from ..callbacks import X"),
        (
            upward_imports,
            "trainer.base",
            "from ..callbacks.callback import X\nfrom .. import loop",
        ),
        (callbacks_of_callbacks, "callbacks.ema", "from .callback import X"),
        (callbacks_of_callbacks, "callbacks", "from .ema import X"),
        (
            callbacks_of_callbacks,
            "callbacks.ema",
            "if TYPE_CHECKING:\n    from ..trainer import X",
        ),
        (heavy_imports_in_the_hinge, "configs.device", "import math\nfrom .errors import X"),
        (heavy_imports_in_the_hinge, "configs.device", "if TYPE_CHECKING:\n    import torch"),
        (heavy_imports_in_the_hinge, "world", "import torch"),
        (absolute_imports_of_itself, "loop", "from .data import X\nimport torch"),
        (imports_of_torch_or_the_runtime, "x", "import torchless\nfrom .torch import x"),
        (copier_at_module_level, "x", "def f():\n    import copier\nfrom .copier import x"),
        (imports_of_the_command_line, "__main__", "from .cli import main"),
        (imports_of_the_command_line, "check.runner", "from .cli import main"),
        (rules_that_know_too_much, "check.rules.a", "import ast\nfrom ..facts import X"),
        (rules_that_know_too_much, "check.runner", "from .rules import X"),
        (untyped_functions, "x", "class A:\n    def f(self, *, a: int, **k: int) -> None: ..."),
        (
            untyped_functions,
            "x",
            "f = lambda x: x\nclass A:\n    @classmethod\n    def f(cls) -> None: ...",
        ),
        (assertions, "x", "assertion = 1\n'assert x'"),
        (long_functions, "x", "def f():\n" + "    x = 1\n" * 59),
        (long_files, "x", "x = 1\n" * 320),
        (missing_docstrings, "x", ""),
        (missing_docstrings, "x", "'''What it is.'''\nx = 1"),
    ],
)
def test_no_fault(check: Check, module: str, text: str) -> None:
    assert found(check, text, module) == []


@pytest.mark.parametrize(
    ("check", "module", "text", "fault"),
    [
        (
            upward_imports,
            "world",
            "from .configs import X\nfrom .loop import Y",
            "2: world imports loop, which lies above it",
        ),
        (
            upward_imports,
            "loop",
            "def f():\n    from .trainer import X",
            "2: loop imports trainer, which lies above it",
        ),
        (
            upward_imports,
            "trainer.base",
            "from ..callbacks import X",
            "1: trainer.base imports callbacks, which lies above it",
        ),
        (
            callbacks_of_callbacks,
            "callbacks.ema",
            "from .logger import X",
            "1: a callback imports callbacks.logger",
        ),
        (
            callbacks_of_callbacks,
            "callbacks.ema",
            "from ..trainer import X",
            "1: a callback imports trainer outside TYPE_CHECKING",
        ),
        (
            heavy_imports_in_the_hinge,
            "configs.device",
            "def f():\n    import torch.distributed",
            "2: the hinge imports torch.distributed",
        ),
        (
            absolute_imports_of_itself,
            "loop",
            "from dream_trainer.data import X",
            "1: dream_trainer.data is not imported relatively",
        ),
        (
            imports_of_torch_or_the_runtime,
            "x",
            "def f():\n    from torch.nn import X",
            "2: imports torch.nn",
        ),
        (
            copier_at_module_level,
            "x",
            "from copier import run_copy",
            "1: imports copier outside a function",
        ),
        (
            imports_of_the_command_line,
            "errors",
            "from .cli import main",
            "1: imports the command line",
        ),
        (
            rules_that_know_too_much,
            "check.rules.a",
            "from ..reader import X",
            "1: a rule imports check.reader",
        ),
        (
            rules_that_know_too_much,
            "check.rules.a",
            "from .b import X",
            "1: a rule imports check.rules.b",
        ),
        (
            untyped_functions,
            "x",
            "class A:\n    def f(self, a, *b, c=1): ...",
            "2: f lacks types: a, c, b, return",
        ),
        (assertions, "x", "def f():\n    assert f", "2: assert f"),
        (long_functions, "x", "def f():\n" + "    x = 1\n" * 60, "1: f has 61 lines"),
        (long_files, "x", "x = 1\n" * 321, "1: 321 lines"),
        (missing_docstrings, "x", "x = 1", "1: the module does not say what it is"),
    ],
)
def test_fault(check: Check, module: str, text: str, fault: str) -> None:
    assert found(check, text, module) == [fault]


def test_names() -> None:
    for fine in ("dream_trainer/trainer/base.py", "dream_trainer/utils/cli.py", "a/distance.py"):
        assert found(vague_names, "", shown=fine) == []
    for vague in ("dream_scaffold/utils.py", "dream_scaffold/dist/x.py", "dream_trainer/base.py"):
        assert len(found(vague_names, "", shown=vague)) == 1


def test_cycles() -> None:
    def graph(**texts: str) -> dict[str, set[str]]:
        return edges([Source("p", name.replace("__", "."), text) for name, text in texts.items()])

    assert cycle(graph(a="from .b import x", b="from .c import x", c="import a")) == []
    assert cycle(graph(a="from .b import x", b="if TYPE_CHECKING:\n    from .a import x")) == []
    assert cycle(graph(a="from .b import x", b="from .a import x")) == ["a", "b", "a"]
    assert cycle(graph(a="from . import b", b="def f():\n    from .a import x")) == ["a", "b", "a"]
    package = Source("p", "k", "from .m import x", is_package=True)
    user, member = Source("p", "u", "from .k.n import x"), Source("p", "k.m", "from ..u import x")
    assert cycle(edges([package, user, member, Source("p", "k.n", "")])) == ["k", "k.m", "u", "k"]
