"""What a project was made from, and what it shall be made from now."""

from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from .. import __version__
from ..errors import DreamError
from .options import Options
from .snapshot import FOLDER

ANSWERS = f"{FOLDER}/answers.yml"
COPIER = ".copier-answers.yml"


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
        if (folder / COPIER).is_file():
            fact = f"{folder} was made from a template that is not of dream."
            raise DreamError(fact, "Run: copier update")
    fact = f"{path} does not lie in a project of `dream new`: there is no {ANSWERS}."
    raise DreamError(fact, "Go to the project's folder, or restore the file from git.")


def read_answers(project: Path) -> Answers:
    """Raises `DreamError` where the record cannot be used."""
    data = _load(project / ANSWERS, ANSWERS)
    version = str(data.get("template", ""))
    if _number(version) > _number(__version__):
        fact = f"The project was made by dream {version}, and this is dream {__version__}."
        raise DreamError(fact, "Upgrade dream-scaffold first.")
    given = _known(data, ANSWERS)
    if missing := [name for name in ("name", "parallel") if not given.get(name)]:
        raise _unusable(ANSWERS, f"it does not say {missing[0]}")
    options = Options(**given)
    options.check()
    return Answers(options, version)


def changed(options: Options, overrides: dict[str, Any]) -> Options:
    """The answers with those of the command line in their place. Raises `DreamError`."""
    given = {name: value for name, value in overrides.items() if value is not None}
    new = replace(options, **given)
    new.check()
    return Options(**new.answers())


def read_file(path: Path) -> dict[str, Any]:
    """The answers of a file of the user's, as far as it gives any.

    Raises `DreamError` where it cannot be used, or has an answer to no question.
    """
    data = _load(path, str(path))
    known = {field.name for field in fields(Options)}
    for name in data:
        if name not in known and name != "template":
            near = get_close_matches(str(name), known, n=1)
            remedy = f"Write {near[0]}." if near else f"It may hold {', '.join(sorted(known))}."
            raise DreamError(f"{path} answers {name}, which nobody asks.", remedy)
    return _known(data, str(path))


def _load(path: Path, shown: str) -> dict[str, Any]:
    import yaml

    try:
        data: object = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise _unusable(shown, f"it cannot be read ({reason})") from None
    if not isinstance(data, dict):
        raise _unusable(shown, "it holds no answers")
    return data


def _known(data: dict[str, Any], shown: str) -> dict[str, Any]:
    """The answers that `Options` knows, in their types."""
    given: dict[str, Any] = {}
    for field in fields(Options):
        if field.name not in data:
            continue
        value = data[field.name]
        if isinstance(field.default, bool):
            if not isinstance(value, bool):
                raise _unusable(shown, f"{field.name} is {value!r}, and not true or false")
            given[field.name] = value
        elif isinstance(value, (str, int, float)):
            given[field.name] = str(value)
        elif value is not None:
            raise _unusable(shown, f"{field.name} is {value!r}, and no text")
    return given


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _unusable(shown: str, reason: str) -> DreamError:
    remedy = "Restore it from git." if shown == ANSWERS else "Write name: value, one a line."
    return DreamError(f"{shown} is of no use: {reason}.", remedy)
