"""Which names a project can have, and why not the others."""

import keyword
import re
import sys

from ..errors import DreamError

DEPENDENCIES = {
    "copier", "dream", "dream_scaffold", "dream_trainer", "jinja2", "numpy", "packaging", "pip",
    "pytest", "rich", "ruff", "safetensors", "scikit_learn", "setuptools", "sklearn",
    "tensorboard", "torch", "torchao", "torchdata", "torchft", "torchmetrics", "transformers",
    "triton", "typer", "wandb", "wheel",
}  # fmt: skip
"""Packages that a project installs or is likely to: one name cannot mean two of them."""

PROJECT_FILES = {"config", "data", "model", "runs", "tests", "train"}
"""What the project itself is made of."""

WINDOWS = {"con", "prn", "aux", "nul"} | {
    f"{port}{number}" for port in ("com", "lpt") for number in range(1, 10)
}

MAX_LENGTH = 64


def check_name(name: str) -> None:
    """Raise `DreamError` with the reason where `name` cannot name a project."""
    reason = _fault(name)
    if reason:
        raise DreamError(f"{name!r} cannot name a project: {reason}.", _suggestion(name))


def _fault(name: str) -> str | None:
    module = name.replace("-", "_").lower()
    if not name:
        return "it is empty"
    if bad := re.search(r"[^A-Za-z0-9_-]", name):
        return f"it contains {bad.group()!r}, and only letters, digits, - and _ can stand in it"
    if not name[0].isalpha():
        return f"it begins with {name[0]!r}, and packages begin with a letter"
    if not name[-1].isalnum():
        return f"it ends with {name[-1]!r}, and packages end with a letter or a digit"
    if len(name) > MAX_LENGTH:
        return f"it has {len(name)} characters, and {MAX_LENGTH} are the most"
    if any(keyword.iskeyword(word) for word in (name, module, module.capitalize())):
        return "it is a keyword of Python"
    if module in WINDOWS:
        return "Windows reserves it for a device"
    if module in DEPENDENCIES:
        return "it is the name of a package that projects install"
    if module in PROJECT_FILES:
        return "a part of every project has this name"
    if module in {known.lower() for known in sys.stdlib_module_names}:
        return "it is the name of a module of Python's standard library"
    return None


def _suggestion(name: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")[:MAX_LENGTH].rstrip("-_")
    better = plain if plain and _fault(plain) is None else f"my-{plain or 'project'}"
    return f"Choose another one, such as {better}."
