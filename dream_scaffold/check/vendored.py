"""The runtime that a project carries, held against the one that the checker knows."""

import ast
import os
from collections.abc import Iterator

from ..resources import runtime_folder
from .facts import Fault, Match, Place
from .source import Sources


def outdated_runtimes(sources: Sources) -> Iterator[Fault]:
    """A fault for every vendored runtime of another version than the shipped one."""
    shipped = _version(os.path.join(runtime_folder(), "__init__.py"))
    for folder in sorted(sources.runtimes):
        path = os.path.join(folder, "__init__.py")
        found = _version(path)
        if found is None or shipped is None or found[0] == shipped[0]:
            continue
        version, line = found
        place = Place(os.path.relpath(path), line, 1, line, 1)
        message = f"The project's runtime is version {version}, dream is version {shipped[0]}."
        yield Fault("DT003", Match(place, message, "Run `dream update`."))


def _version(path: str) -> tuple[str, int] | None:
    """The literal `__version__` of a file and its line."""
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.startswith("__version__"):
                    return str(ast.literal_eval(line.partition("=")[2].strip())), number
    except (OSError, ValueError, SyntaxError):
        pass
    return None
