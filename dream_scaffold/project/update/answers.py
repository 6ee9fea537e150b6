"""What a project was made from, and what it shall be made from now."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ... import __version__
from ...errors import DreamError
from ..choices import check_choice
from ..modes import read_mode
from ..options import RECIPES, Options
from ..snapshot import FOLDER

ANSWERS = f"{FOLDER}/answers.yml"


@dataclass(frozen=True)
class Answers:
    """The recorded answers and the version of the template."""

    options: Options
    version: str


def find_project(path: Path) -> Path:
    """The folder of the project that `path` lies in. Raises `DreamError`."""
    for folder in (path, *path.parents):
        if (folder / ANSWERS).is_file():
            return folder
    fact = f"{path} does not lie in a project of `dream new`: there is no {ANSWERS}."
    raise DreamError(fact, "Go to the project's folder, or restore the file from git.")


def read_answers(project: Path) -> Answers:
    """Raises `DreamError` where the record cannot be used."""
    import yaml

    path = project / ANSWERS
    try:
        data: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = str(error).partition("\n")[0]
        raise _unusable(f"it cannot be read ({reason})") from None
    if not isinstance(data, dict):
        raise _unusable("it holds no answers")
    version = str(data.get("template", ""))
    if _number(version) > _number(__version__):
        fact = f"The project was made by dream {version}, and this is dream {__version__}."
        raise DreamError(fact, "Upgrade dream-scaffold first.")
    known = {field.name: field for field in fields(Options)}
    given = {name: value for name, value in data.items() if name in known}
    if missing := [name for name in ("name", "parallel") if not given.get(name)]:
        raise _unusable(f"it does not say {missing[0]}")
    options = Options(**{name: _typed(name, value) for name, value in given.items()})
    _check(options)
    return Answers(options, version)


def changed(options: Options, overrides: dict[str, Any]) -> Options:
    """The answers with those of the command line in their place. Raises `DreamError`."""
    given = {name: value for name, value in overrides.items() if value is not None}
    new = replace(options, **given)
    _check(new)
    return replace(new, parallel=new.mode.name)


def _check(options: Options) -> None:
    read_mode(options.parallel)
    check_choice("--recipe", options.recipe, RECIPES)


def _typed(name: str, value: object) -> Any:
    default = next((f.default for f in fields(Options) if f.name == name), None)
    if isinstance(default, bool) and not isinstance(value, bool):
        raise _unusable(f"{name} is {value!r}, and not true or false")
    return value if isinstance(default, bool) else str(value)


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _unusable(reason: str) -> DreamError:
    return DreamError(f"{ANSWERS} is of no use: {reason}.", "Restore it from git.")
