"""What a project needs to run, and what of it is not there."""

import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

NAME = re.compile(r"[\w.-]+")


def missing_packages(project: Path) -> list[str]:
    """The packages of its pyproject.toml that are not installed, whatever their versions.

    Empty where that file cannot be read: others say so.
    """
    import tomllib

    try:
        table = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
        needed = table["project"]["dependencies"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    names = [found.group() for need in needed if (found := NAME.match(str(need)))]
    return [name for name in names if not _is_installed(name)]


def _is_installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True
