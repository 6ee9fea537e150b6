"""What the command line left open: asked on a terminal, refused without one."""

import shlex
import sys
from collections.abc import Callable, Mapping

import typer

from ..errors import DreamError
from .choices import check_choice
from .modes import PARTS, read_mode
from .options import RECIPES

DEFAULT_MODE = "fsdp"
"""It runs on any number of ranks, one included."""

DEFAULT_RECIPE = "lm"


def complete(
    path: str | None, parallel: str | None, recipe: str | None, *, defaults: bool
) -> tuple[str, str, str]:
    """Path, mode and recipe of the project, all of them known.

    Raises `DreamError` with the whole command line where something is missing that
    nobody can be asked for.
    """
    if defaults:
        parallel = parallel or DEFAULT_MODE
    if path and parallel:
        return path, parallel, recipe or DEFAULT_RECIPE
    if defaults or not sys.stdin.isatty():
        given = {"PATH": path, "--parallel": parallel}
        missing = [what for what, value in given.items() if not value]
        silence = "--defaults asks nothing" if defaults else "there is no terminal to ask on"
        raise DreamError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing, "
            f"and {silence}.",
            f"Run: {_command(path, parallel)}",
        )
    path = path or str(typer.prompt("Folder of the new project"))
    parallel = parallel or _choose(
        "How is a run laid out? Several are joined by +, such as fsdp+tp.",
        {name: part.meaning for name, part in PARTS.items()},
        DEFAULT_MODE,
        read_mode,
    )
    recipe = recipe or _choose(
        "What does the project start from?",
        RECIPES,
        DEFAULT_RECIPE,
        lambda answer: check_choice("--recipe", answer, RECIPES),
    )
    return path, parallel, recipe


def _choose(
    question: str, choices: Mapping[str, str], default: str, check: Callable[[str], object]
) -> str:
    """Ask until `check` does not raise."""
    typer.echo(question)
    for name, meaning in choices.items():
        typer.echo(f"  {name:8}{meaning}")
    while True:
        answer = str(typer.prompt("Choice", default=default)).strip()
        try:
            check(answer)
        except DreamError as error:
            typer.echo(f"  {error}")
        else:
            return answer


def _command(path: str | None, parallel: str | None) -> str:
    """The command line that was meant, with what it lacks."""
    given = sys.argv[1:] if sys.argv[1:2] == ["new"] else ["new", *([path] if path else [])]
    added = [] if path else ["my-project"]
    added += [] if parallel else ["--parallel", DEFAULT_MODE]
    return shlex.join(["dream", *given, *added])
