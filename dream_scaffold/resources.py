"""Where the template and the runtime lie: in a checkout or in an installed wheel.

No other file knows.
"""

import os
import sys
from importlib.util import module_from_spec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PACKAGE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(PACKAGE, "_data")
"""Only a wheel has it."""


def templates() -> "Path":
    """The folder of the copier template."""
    from pathlib import Path  # `dream check` is done before it would be loaded.

    return Path(DATA if os.path.isdir(DATA) else os.path.dirname(PACKAGE)) / "templates"


def runtime() -> "Path":
    """The folder of the runtime that every project gets a copy of."""
    from pathlib import Path

    return Path(runtime_folder())


def runtime_folder() -> str:
    """The same, as text."""
    root = DATA if os.path.isdir(DATA) else os.path.dirname(PACKAGE)
    return os.path.join(root, "runtime", "dream_trainer")


def load_runtime(module: str) -> ModuleType:
    """Import one torch-free module of the shipped runtime, `configs` or `contract`.

    It gets a private name, so that it never meets the `dream_trainer` of a project.
    """
    from importlib import import_module
    from importlib.machinery import ModuleSpec

    private = "_dream_runtime"
    if private not in sys.modules:
        folder = runtime_folder()
        spec = ModuleSpec(private, None, is_package=True)
        spec.submodule_search_locations = [folder]
        sys.modules[private] = module_from_spec(spec)
    return import_module(f"{private}.{module}")
