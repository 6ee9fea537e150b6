"""`dream new` and `dream check` as whole commands, beside what they are measured by.

    python tests/benchmarks/commands.py [--rounds 11] [--json FILE]

`dream check` on a generated project against `import typer` and, where they are installed,
pyright and mypy; `dream new` with commit, formatting and final check against `copier copy`
of the same template with the same answers, `cookiecutter` with the same files and `uv init`;
a `dream update` that finds nothing against such a `copier update`. In turn, whole processes,
medians of ratios. Tools of the extra `bench` that are not installed have no row.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}
DREAM = [sys.executable, "-m", "dream_scaffold"]


def seconds(command: list[str], cwd: Path, clean: Callable[[], object] = lambda: None) -> float:
    clean()
    begin = time.perf_counter()
    subprocess.run(
        command,
        cwd=cwd,
        env=ENVIRONMENT,
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )
    return time.perf_counter() - begin


def compare(
    rows: dict[str, list[str]], cwd: Path, rounds: int, clean: Callable[[], object] = lambda: None
) -> dict[str, dict[str, float]]:
    """Run the commands in turn; ratios are to the first row, round by round."""
    times: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(rounds + 1):
        for name, command in rows.items():
            times[name].append(seconds(command, cwd, clean))
    first = next(iter(rows))
    return {
        name: {
            "seconds": statistics.median(taken[1:]),
            "first_over_this": statistics.median(
                own / other for own, other in zip(times[first][1:], taken[1:], strict=True)
            ),
        }
        for name, taken in times.items()
    }


def engine_milliseconds(project: Path, rounds: int) -> float:
    """The check alone, files read afresh each time, in a process that has imported it."""
    script = (
        "import statistics, time\n"
        "from dream_scaffold.check import Options, check\n"
        "def once():\n"
        "    begin = time.perf_counter()\n"
        "    check(Options(paths=('train.py',)))\n"
        "    return time.perf_counter() - begin\n"
        "once()\n"
        f"print(1000 * statistics.median(once() for _ in range({rounds})))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=project,
        env=ENVIRONMENT,
        check=True,
        capture_output=True,
        text=True,
    )
    return float(done.stdout)


def check_rows() -> dict[str, list[str]]:
    rows = {
        "dream check": [*DREAM, "check", "train.py"],
        "import typer": [sys.executable, "-c", "import typer"],
        "python -c pass": [sys.executable, "-c", "pass"],
    }
    if shutil.which("ruff"):
        rows["ruff check"] = ["ruff", "check", "--no-cache", "--exit-zero", "train.py"]
    if shutil.which("mypy"):
        rows["mypy (warm)"] = [
            sys.executable,
            "-c",
            "import subprocess; subprocess.run(['mypy', 'train.py'])",
        ]
    return rows


def copier_row(folder: Path) -> list[str]:
    """`copier copy` of the template with the very answers that `dream new` gives it."""
    import copier

    from dream_scaffold.project.options import Options
    from dream_scaffold.project.render import render_project

    given: dict[str, Any] = {}

    class Captured(Exception):
        pass

    def capture(source: str, target: Path, data: dict[str, Any], **settings: Any) -> None:
        given.update(data=data, exclude=settings.get("exclude", ()))
        raise Captured

    with patch.object(copier, "run_copy", capture), suppress(Captured):
        render_project(Options(name="there", recipe="lm", parallel="fsdp"), folder / "captured")
    answers = folder / "answers.yml"
    answers.write_text(json.dumps(given["data"]))
    excludes = [word for pattern in given["exclude"] for word in ("--exclude", pattern)]
    command = ["copy", "--defaults", "--quiet", "--data-file", str(answers), *excludes]
    return [sys.executable, "-m", "copier", *command, str(ROOT / "templates"), "there"]


def cookiecutter_row(folder: Path, project: Path) -> dict[str, list[str]]:
    """`cookiecutter` of a template that makes the files of `project`, its name filled in."""
    if find_spec("cookiecutter") is None:
        return {}
    template = folder / "cookie" / "{{cookiecutter.name}}"
    plain = []
    for path in sorted(project.rglob("*")):
        where = path.relative_to(project)
        if not path.is_file() or where.parts[0] == ".git":
            continue
        (template / where).parent.mkdir(parents=True, exist_ok=True)
        data = path.read_bytes()
        if b"{{" in data or b"{%" in data or b"{#" in data:
            plain.append(where.as_posix())
        else:
            data = data.replace(b"my-lm", b"{{cookiecutter.name}}")
        (template / where).write_bytes(data)
    answers = {"name": "there", "_copy_without_render": plain}
    (folder / "cookie" / "cookiecutter.json").write_text(json.dumps(answers))
    return {"cookiecutter": [sys.executable, "-m", "cookiecutter", "--no-input", "cookie"]}


def update_rows(folder: Path, project: Path) -> dict[str, list[str]]:
    """An update that finds nothing: ours, and copier's of the same files, which wants git."""
    template, copied = folder / "template", folder / "copied"
    shutil.copytree(project, template, ignore=shutil.ignore_patterns(".git", ".dream"))
    (template / "copier.yml").write_text("name: {type: str, default: there}\n")
    answers = template / "{{ _copier_conf.answers_file }}.jinja"
    answers.write_text("{{ _copier_answers|to_nice_yaml -}}\n")
    commit(template, "v1.0.0")
    copier = [sys.executable, "-m", "copier"]
    subprocess.run(
        [*copier, "copy", "--defaults", "--quiet", str(template), str(copied)],
        cwd=folder,
        env=ENVIRONMENT,
        check=True,
        capture_output=True,
    )
    commit(copied, "v0")
    return {
        "dream update": [*DREAM, "update", "my-lm"],
        "copier update": [*copier, "update", "--defaults", "--quiet", str(copied)],
    }


def commit(folder: Path, tag: str) -> None:
    who = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "all"], ["tag", tag]):
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(
            [*DREAM, "new", "my-lm", "--recipe", "lm", "--parallel", "fsdp"],
            cwd=folder,
            env=ENVIRONMENT,
            check=True,
            capture_output=True,
        )
        project = folder / "my-lm"
        copy = copier_row(folder)
        new = {
            "dream new": [*DREAM, "new", "there", "--recipe", "lm", "--parallel", "fsdp"],
            "copier copy": copy,
            **cookiecutter_row(folder, project),
        }
        if uv := shutil.which("uv"):
            new["uv init"] = [uv, "init", "--offline", "--quiet", "there"]
        report = {
            "check": compare(check_rows(), project, options.rounds),
            "update": compare(update_rows(folder, project), folder, options.rounds),
            "new": compare(
                new,
                folder,
                options.rounds,
                clean=lambda: shutil.rmtree(folder / "there", ignore_errors=True),
            ),
        }
        engine = engine_milliseconds(project, 10 * options.rounds)
    for case, rows in report.items():
        first = next(iter(rows))
        print(f"{case:<18}{'seconds':>9}{first + ' / this':>22}")
        for name, row in rows.items():
            print(f"  {name:<16}{row['seconds']:>9.3f}{row['first_over_this']:>22.2f}")
    print(f"the check's engine alone: {engine:.1f} ms")
    if options.json:
        options.json.write_text(json.dumps(report | {"engine_ms": engine}, indent=2))


if __name__ == "__main__":
    main()
