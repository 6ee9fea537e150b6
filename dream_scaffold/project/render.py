"""The template and the runtime, written into an empty folder and formatted."""

import shutil
import subprocess
import sys
import warnings
from pathlib import Path

from .. import __version__, resources
from ..errors import DreamError
from .options import Options
from .presets import LICENSES, files_left_out
from .recipes import RECIPES

RUNTIME = "dream_trainer"

DOTTED = ("dockerignore", "dream", "github", "gitignore")
"""Named without their dot in the template, since packaging drops such files."""


def render_project(options: Options, target: Path) -> None:
    """Write the whole project into `target`, which must not hold any file yet."""
    _render(options, target)
    copy_runtime(target / RUNTIME)
    _format(target)


def _render(options: Options, target: Path) -> None:
    """Run copier, which is slow to import and therefore imported here alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from copier import run_copy

        mode = options.mode
        data = options.answers() | {
            "parts": mode.parts,
            "hooks": options.hooks,
            "preset": mode.preset,
            "degrees": mode.degrees,
            "ranks": mode.ranks,
            "requires": options.requires,
            "launchers": options.launchers,
            "spdx": LICENSES[options.license].meaning,
            "command": options.command,
            "version": __version__,
        }
        run_copy(
            str(resources.templates()),
            target,
            data,
            exclude=[
                *(f"/recipes/{other}" for other in RECIPES if other != options.recipe),
                *(f"/project/{file}" for file in files_left_out(options.presets)),
            ],
            defaults=True,
            overwrite=True,
            quiet=True,
            cleanup_on_error=False,
        )
    for layer in ("project", f"recipes/{options.recipe}"):
        for path in list((target / layer).iterdir()):
            dot = "." if path.name in DOTTED else ""
            path.rename(target / f"{dot}{path.name}")
    for emptied in ("project", "recipes"):
        shutil.rmtree(target / emptied)


def copy_runtime(target: Path) -> None:
    """The training runtime, as a project carries it."""
    runtime = resources.runtime()
    for source in sorted(runtime.rglob("*")):
        if source.is_file() and "__pycache__" not in source.parts:
            copy = target / source.relative_to(runtime)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)


def _format(target: Path) -> None:
    """Bring the rendered text into the project's own format; the runtime has it."""
    for command in (
        ["check", "--select", "I", "--fix", "--output-format", "concise"],
        ["format"],
    ):
        done = subprocess.run(
            [ruff(), *command, "--quiet", "--no-cache", "--exclude", RUNTIME, "."],
            cwd=target,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            said = (done.stderr or done.stdout or "it was ended").strip().splitlines()[0]
            fact = f"ruff {command[0]} could not format the project: {said}"
            raise DreamError(fact, "Nothing was left behind. Mend that and run it again.")


def ruff() -> str:
    """The formatter that came with this package."""
    beside = Path(sys.executable).with_name("ruff")
    return str(beside) if beside.exists() else shutil.which("ruff") or "ruff"
