"""Which names what is added can have: of classes, of modules, of functions."""

import keyword
import re
import sys

from ...errors import DreamError
from ..names import DEPENDENCIES, PROJECT_FILES, WINDOWS

SUFFIX = "_config"


def callback_names(name: str) -> tuple[str, str]:
    """The class and the module of a callback: `EarlyStop` and `early_stop`.

    Raises `DreamError`.
    """
    parts = re.split(r"[-_]", name)
    is_camel = name[:1].isupper() and len(parts) == 1
    cls = name if is_camel else "".join(part[:1].upper() + part[1:] for part in parts)
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", cls)
    module = words.lower()
    fault = _fault(name, cls) or _fault_of_module(module)
    if fault is not None:
        raise DreamError(f"{name!r} cannot name a callback: {fault}.", "Try EarlyStop, say.")
    return cls, module


def config_names(name: str) -> tuple[str, str]:
    """The choice of `--config` and the function: `long-run` and `long_run_config`.

    Raises `DreamError`.
    """
    choice = name.removesuffix(SUFFIX) or name
    function = re.sub(r"[-+.]", "_", choice) + SUFFIX
    fault = _fault(name, function)
    if fault is not None:
        raise DreamError(
            f"{name!r} cannot name a configuration: {fault}.", "Try large, or fsdp+tp."
        )
    return choice, function


def _fault(name: str, identifier: str) -> str | None:
    if not name:
        return "it is empty"
    if not identifier.isidentifier():
        return f"{identifier!r} is no name in Python"
    if not identifier.isascii():
        return "it has letters beyond a to z, which not every file system keeps alike"
    if keyword.iskeyword(identifier):
        return "it is a keyword of Python"
    if len(identifier) > 64:
        return f"it has {len(identifier)} characters, and 64 are the most"
    return None


def _fault_of_module(module: str) -> str | None:
    if keyword.iskeyword(module):
        return "its module would be called as a keyword of Python"
    if module in WINDOWS:
        return "Windows reserves the name of its module for a device"
    if module in DEPENDENCIES:
        return "its module would hide a package that projects install"
    if module in PROJECT_FILES:
        return "a part of every project has the name of its module"
    if module in sys.stdlib_module_names:
        return "its module would hide one of Python's standard library"
    return None
