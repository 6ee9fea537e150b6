"""What the command line left open: asked on a terminal, refused without one."""

import shlex
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import DreamError
from .modes import PARTS, read_mode
from .names import check_name
from .presets import TRACKERS, Choice
from .recipes import RECIPES, Recipe, check_recipe

DEFAULT_MODE = "fsdp"
"""It runs on any number of ranks, one included."""

DEFAULT_RECIPE = "lm"
DEFAULT_TRACKER = "none"
SEVERAL = "several of them"


def complete(
    path: str | None,
    parallel: str | None,
    recipe: str | None,
    tracker: str | None,
    *,
    defaults: bool,
) -> tuple[str, str, str, str]:
    """Path, mode, recipe and tracker of the project, all of them known.

    Raises `DreamError` with the whole command line where something is missing that
    nobody can be asked for.
    """
    if defaults:
        parallel = parallel or DEFAULT_MODE
    if path and parallel:
        return path, parallel, recipe or DEFAULT_RECIPE, tracker or DEFAULT_TRACKER
    if defaults or not sys.stdin.isatty():
        given = {"PATH": path, "--parallel": parallel}
        missing = [what for what, value in given.items() if not value]
        silence = "--defaults asks nothing" if defaults else "there is no terminal to ask on"
        raise DreamError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing, "
            f"and {silence}.",
            f"Run: {_command(path, parallel)}",
        )
    path = path or _write("Folder of the new project:", _named)
    if recipe is None:
        recipe = _pick("What does it start from?", _told(RECIPES), DEFAULT_RECIPE)
    parallel = parallel or _mode(recipe)
    if tracker is None:
        tracker = _pick("Where do logs go?", _told(TRACKERS), DEFAULT_TRACKER)
    return path, parallel, recipe, tracker


def _told(choices: Mapping[str, Recipe] | Mapping[str, Choice]) -> dict[str, tuple[str, str]]:
    return {name: (each.meaning, each.advice) for name, each in choices.items()}


def _mode(recipe: str) -> str:
    parts = {
        name: (part.meaning, part.advice)
        for name, part in PARTS.items()
        if name in RECIPES[recipe].parts
    }
    several = {SEVERAL: ("joined by +, such as fsdp+tp", "Large models on many nodes.")}
    default = DEFAULT_MODE if DEFAULT_MODE in parts else next(iter(parts))
    picked = _pick("How is a run laid out?", parts | several, default)
    if picked != SEVERAL:
        return picked
    return _write("Which, joined by +?", lambda mode: check_recipe(recipe, read_mode(mode)))


def _pick(question: str, choices: Mapping[str, tuple[str, str]], default: str) -> str:
    """One of `choices`, by the arrow keys: each a meaning, and advice under the cursor."""
    import questionary

    width = max(map(len, choices))
    shown = [
        questionary.Choice(f"{name:{width}}  {meaning}", value=name, description=advice)
        for name, (meaning, advice) in choices.items()
    ]
    asked = questionary.select(question, shown, default=default, instruction="(arrow keys)")
    return _answer(asked)


def _write(question: str, check: Callable[[str], object]) -> str:
    """A text that `check` does not refuse."""
    import questionary

    def judge(text: str) -> bool | str:
        try:
            check(text.strip())
        except DreamError as error:
            return f"{error.fact} {error.remedy}"
        return True

    return _answer(questionary.text(question, validate=judge)).strip()


def _answer(question: Any) -> str:
    """Raises `KeyboardInterrupt` where the question is left."""
    answer = question.unsafe_ask()
    if answer is None:
        raise KeyboardInterrupt
    return str(answer)


def _named(path: str) -> None:
    from os.path import abspath, basename

    check_name(basename(abspath(path)) if path else "")


def _command(path: str | None, parallel: str | None) -> str:
    """The command line that was meant, with what it lacks."""
    given = sys.argv[1:] if sys.argv[1:2] == ["new"] else ["new", *([path] if path else [])]
    added = [] if path else ["my-project"]
    added += [] if parallel else ["--parallel", DEFAULT_MODE]
    return shlex.join(["dream", *given, *added])
