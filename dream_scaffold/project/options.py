"""What a new project is made from, and which hooks that calls for."""

from dataclasses import asdict, dataclass
from typing import Any

MODES = {
    "single": "one device",
    "ddp": "a copy of the model on every rank",
    "fsdp": "the model sharded over all ranks",
    "hsdp": "sharded inside groups of ranks, replicated over the groups",
}
"""Value of `--parallel` -> what it means."""

RECIPES = {
    "lm": "a small language model that learns real text",
    "blank": "a stand-in model and data, to be replaced",
}
"""Value of `--recipe` -> what the project starts from."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The answers that decide every byte of a project."""

    name: str
    parallel: str
    recipe: str = "lm"
    compile: bool = False

    def answers(self) -> dict[str, Any]:
        return asdict(self)
