"""How long `dream check` takes, beside what people wait for anyway.

    python tests/benchmarks/check_speed.py [--rounds 11] [--json FILE]

(a) A generated project, whole processes in turn: `dream check`, `import typer`, and where they
    are installed ruff, mypy and pyright, each without what it remembers of an earlier run.
    Aim: at most twice `import typer`.
(b) The engine alone, in a process that has imported it. Aim: under 20 ms.
(c) 500 files of real code and a generated project between them, in turn with `ast.parse` of all
    of them in the same process. Aim: at most 1.3 times that.

Ratios are medians over rounds of this row to the first one's, round by round.
"""

import argparse
import ast
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}
DREAM = [sys.executable, "-m", "dream_scaffold"]
FILES = 500

Row = dict[str, float]


def in_turn(work: dict[str, Callable[[], float]], rounds: int) -> dict[str, Row]:
    """The times that `work` reports, one of each a round; a first round is for the disk."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds + 1):
        for name, once in work.items():
            times[name].append(once())
    first = next(iter(times.values()))[1:]
    return {
        name: {
            "milliseconds": 1000 * statistics.median(taken[1:]),
            "ratio": statistics.median(
                own / other for own, other in zip(taken[1:], first, strict=True)
            ),
        }
        for name, taken in times.items()
    }


def command(words: list[str], cwd: Path, forget: str | None = None) -> Callable[[], float]:
    """A whole process; what it leaves in the folder `forget` is taken away first."""

    def once() -> float:
        if forget is not None:
            shutil.rmtree(cwd / forget, ignore_errors=True)
        begin = time.perf_counter()
        # Its exit code may tell of findings; that is no failure.
        subprocess.run(
            words, cwd=cwd, env=ENVIRONMENT, capture_output=True, stdin=subprocess.DEVNULL
        )
        return time.perf_counter() - begin

    return once


def tools(project: Path) -> dict[str, Callable[[], float]]:
    rows = {
        "import typer": command([sys.executable, "-c", "import typer"], project),
        "dream check": command([*DREAM, "check"], project),
        "python -c pass": command([sys.executable, "-c", "pass"], project),
    }
    if ruff := shutil.which("ruff"):
        rows["ruff check"] = command([ruff, "check", "--no-cache"], project)
    if mypy := shutil.which("mypy"):
        rows["mypy"] = command([mypy, "train.py", "config.py"], project, forget=".mypy_cache")
        rows["mypy (warm)"] = command([mypy, "train.py", "config.py"], project)
    for name in ("pyright", "basedpyright"):
        if found := shutil.which(name):
            rows[name] = command([found, "train.py", "config.py"], project)
            break
    else:
        print("pyright is not installed: pip install basedpyright")
    return rows


def engine(folder: Path) -> Callable[[], float]:
    """`check` of a folder in this process, files read afresh."""
    from dream_scaffold.check import Options, check

    def once() -> float:
        begin = time.perf_counter()
        check(Options(paths=(str(folder),)))
        return time.perf_counter() - begin

    return once


def parsing(folder: Path) -> Callable[[], float]:
    """`ast.parse` of every file that the check of `folder` might read."""
    from dream_scaffold.check.source import python_files

    def once() -> float:
        begin = time.perf_counter()
        for path in python_files(str(folder)):
            with open(path, "rb") as file:
                ast.parse(file.read())
        return time.perf_counter() - begin

    return once


def real_files() -> list[Path]:
    """Files of the largest package that is installed, parents of each other as they are."""
    packages = [
        folder
        for folder in Path(sysconfig.get_paths()["purelib"]).iterdir()
        if folder.is_dir() and (folder / "__init__.py").exists()
    ]
    largest = max(packages, key=lambda folder: sum(1 for _ in folder.rglob("*.py")))
    files = [path for path in sorted(largest.rglob("*.py")) if readable(path)]
    return sorted(random.Random(0).sample(files, min(FILES, len(files))))


def readable(path: Path) -> bool:
    try:
        ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError):
        return False
    return True


def fill(folder: Path, project: Path) -> int:
    """Real code, and the generated project in the midst of it. The number of real files."""
    files = real_files()
    site = Path(sysconfig.get_paths()["purelib"])
    for path in files:
        target = folder / path.relative_to(site)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    shutil.copytree(project, folder / "training")
    return len(files)


def show(title: str, rows: dict[str, Row]) -> None:
    first = next(iter(rows))
    print(f"{title:<44}{'ms':>10}{'/ ' + first:>20}")
    for name, row in rows.items():
        print(f"  {name:<42}{row['milliseconds']:>10.1f}{row['ratio']:>20.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(
            [*DREAM, "new", "my-lm", "--recipe", "lm", "--parallel", "fsdp"],
            cwd=folder,
            env=ENVIRONMENT,
            check=True,
            capture_output=True,
        )
        project, mixed = folder / "my-lm", folder / "mixed"
        count = fill(mixed, project)
        report = {
            "a generated project": in_turn(tools(project), options.rounds),
            "the engine alone": in_turn(
                {
                    "ast.parse": parsing(project),
                    "dream check": engine(project),
                },
                10 * options.rounds,
            ),
            f"{count} files beside a generated project": in_turn(
                {"ast.parse": parsing(mixed), "dream check": engine(mixed)}, options.rounds
            ),
        }
    for title, rows in report.items():
        show(title, rows)
    if options.json:
        options.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
