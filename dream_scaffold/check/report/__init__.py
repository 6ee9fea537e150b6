"""Output formats, one a file; each is a function from a result to text."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..engine import Result


def render(result: "Result") -> str:
    """The result in the format that its options ask for."""
    name = result.options.output_format or "full"
    # Only the format asked for is imported.
    module = import_module(f".{name}", __name__)
    text: str = module.render(result)
    return text
