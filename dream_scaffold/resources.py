"""Where the template and the runtime lie: in a checkout or in an installed wheel.

No other file knows.
"""

import sys
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType

PACKAGE = Path(__file__).parent
DATA = PACKAGE / "_data"
"""Only a wheel has it."""


def templates() -> Path:
    """The folder of the copier template."""
    return DATA / "templates" if DATA.is_dir() else PACKAGE.parent / "templates"


def runtime() -> Path:
    """The folder of the runtime that every project gets a copy of."""
    if DATA.is_dir():
        return DATA / "runtime" / "dream_trainer"
    return PACKAGE.parent / "runtime" / "dream_trainer"


def load_runtime(module: str) -> ModuleType:
    """Import one torch-free module of the shipped runtime, `configs` or `contract`.

    It gets a private name, so that it never meets the `dream_trainer` of a project.
    """
    from importlib import import_module
    from importlib.machinery import ModuleSpec

    private = "_dream_runtime"
    if private not in sys.modules:
        folder = str(runtime())
        spec = ModuleSpec(private, None, is_package=True)
        spec.submodule_search_locations = [folder]
        sys.modules[private] = module_from_spec(spec)
    return import_module(f"{private}.{module}")
