"""What a new project is made from."""

from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from typing import Any

from ..errors import DreamError


@dataclass(frozen=True, kw_only=True)
class Mode:
    """A value of `--parallel`: a preset of `DeviceParameters`, and how to try it."""

    preset: str
    meaning: str
    ranks: int
    """The fewest processes that show the mode at work."""

    degrees: dict[str, int] = field(default_factory=dict)
    """What the preset asks for beside its defaults."""


MODES = {
    "single": Mode(preset="SINGLE_DEVICE", meaning="one device", ranks=1),
    "ddp": Mode(preset="DDP", meaning="a copy of the model on every rank", ranks=2),
    "fsdp": Mode(preset="FSDP", meaning="the model sharded over all ranks", ranks=2),
    "hsdp": Mode(
        preset="HSDP",
        meaning="sharded in groups of ranks, replicated over the groups",
        ranks=4,
        degrees={"dp_shard": 2},
    ),
}

RECIPES = {
    "lm": "a small language model that learns real text",
    "blank": "a stand-in model and data, to be replaced",
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """The answers that decide every byte of a project."""

    name: str
    parallel: str
    recipe: str = "lm"
    compile: bool = False

    def answers(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def launch(self) -> str:
        """The command that trains the project."""
        ranks = MODES[self.parallel].ranks
        return f"torchrun --nproc-per-node={ranks} train.py" if ranks > 1 else "python train.py"


def check_choice(flag: str, value: str, known: Collection[str]) -> None:
    """Raise `DreamError` where `value` is none of the `known` values of `flag`."""
    if value not in known:
        listed = ", ".join(known)
        near = get_close_matches(value, known, n=1)
        remedy = f"Did you mean {near[0]}? Known are" if near else "Use one of"
        raise DreamError(f"{flag} {value} is unknown.", f"{remedy} {listed}.")
