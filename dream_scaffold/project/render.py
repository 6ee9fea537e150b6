"""The template and the runtime, written into an empty folder and formatted."""

import shutil
import subprocess
import sys
import warnings
from pathlib import Path

from .. import __version__, resources
from ..errors import DreamError
from .options import MODES, Options

RUNTIME = "dream_trainer"

DOTTED = ("dream", "gitignore")
"""Named without their dot in the template, since packaging drops such files."""


def render_project(options: Options, target: Path) -> None:
    """Write the whole project into `target`, which must not hold any file yet."""
    _render(options, target)
    _format(target)
    shutil.copytree(
        resources.runtime(),
        target / RUNTIME,
        ignore=shutil.ignore_patterns("__pycache__", "*.pyc"),
    )


def called_hooks(options: Options) -> list[str]:
    """The hooks that the runtime calls in this mode, in its order.

    Asks the runtime's own contract, so that no rule about hooks is written twice.
    """
    contract = resources.load_runtime("contract")
    mode = MODES[options.parallel]
    preset = getattr(contract.DeviceParameters, mode.preset)
    parameters = preset(compile_model=options.compile, **mode.degrees)
    return [
        hook.name
        for hook in contract.HOOKS
        if contract.callers(hook, parameters, parameters.degrees)
    ]


def _render(options: Options, target: Path) -> None:
    """Run copier, which is slow to import and therefore imported here alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from copier import run_copy

        mode = MODES[options.parallel]
        data = options.answers() | {
            "hooks": called_hooks(options),
            "preset": mode.preset,
            "degrees": mode.degrees,
            "ranks": mode.ranks,
            "version": __version__,
        }
        for layer in ("project", f"recipes/{options.recipe}"):
            run_copy(
                str(resources.templates()),
                target,
                data | {"layer": layer},
                defaults=True,
                overwrite=True,
                quiet=True,
                cleanup_on_error=False,
            )
    for name in DOTTED:
        (target / name).rename(target / f".{name}")


def _format(target: Path) -> None:
    """Bring the rendered text into the project's own format."""
    ruff = _ruff()
    for command in (["check", "--select", "I", "--fix"], ["format"]):
        done = subprocess.run(
            [ruff, *command, "--quiet", "--no-cache", "."], cwd=target, capture_output=True
        )
        if done.returncode:
            fact = f"ruff {command[0]} failed: {done.stderr.decode().strip()}"
            raise DreamError(fact, "This is a fault of the template: please report it.")


def _ruff() -> str:
    beside = Path(sys.executable).with_name("ruff")
    return str(beside) if beside.exists() else shutil.which("ruff") or "ruff"
