"""The values of `--parallel`: one way to lay out a run, or several joined by +."""

from dataclasses import dataclass, field
from math import prod
from typing import Any

from .. import resources
from ..errors import DreamError
from .choices import check_choice


@dataclass(frozen=True, kw_only=True)
class Part:
    """One way to lay out a run."""

    meaning: str
    advice: str
    """When to take it."""

    preset: str = ""
    """The classmethod of `DeviceParameters` that it is; empty: an axis of any of them."""

    ranks: int = 2
    """The fewest processes that show it at work."""

    degrees: dict[str, int] = field(default_factory=dict)
    """What it asks of `DeviceParameters` beside the defaults of the preset."""


PARTS = {
    "single": Part(
        preset="SINGLE_DEVICE",
        meaning="one device",
        advice="A laptop, or one device that is enough.",
        ranks=1,
    ),
    "ddp": Part(
        preset="DDP",
        meaning="a copy of the model on every rank",
        advice="The model fits on each device; you want more throughput.",
    ),
    "fsdp": Part(
        preset="FSDP",
        meaning="the model sharded over all ranks",
        advice="The usual choice: it runs on one rank, and on many.",
    ),
    "hsdp": Part(
        preset="HSDP",
        meaning="sharded in groups of ranks, replicated over the groups",
        advice="Many nodes: shard inside each, where links are fast.",
        ranks=4,
        degrees={"dp_shard": 2},
    ),
    "cp": Part(
        meaning="every sequence split over two ranks",
        advice="Sequences too long for one device.",
        degrees={"context_parallel": 2},
    ),
    "tp": Part(
        meaning="every layer split over two ranks",
        advice="Layers too large for one device; inside one node.",
        degrees={"tensor_parallel": 2},
    ),
    "pp": Part(
        meaning="the layers cut into two stages",
        advice="Models too deep for a node, or slow links between nodes.",
        degrees={"pipeline_parallel": 2},
    ),
}
"""In the order in which a value names them."""

SEVERAL = ", alone or joined, such as fsdp+tp"


@dataclass(frozen=True)
class Mode:
    """A value of `--parallel`: a call of `DeviceParameters`, and how to try it."""

    parts: tuple[str, ...]
    """Keys of `PARTS`, in their order."""

    @property
    def name(self) -> str:
        return "+".join(self.parts)

    @property
    def preset(self) -> str:
        """The classmethod of `DeviceParameters`; empty for its constructor."""
        own = PARTS[self.parts[0]].preset
        # Ranks that share a sequence hold the same weights: they shard them.
        return own or ("FSDP" if "cp" in self.parts else "")

    @property
    def degrees(self) -> dict[str, int]:
        """What the preset is given beside its defaults."""
        degrees = {"dp_shard": 1} if self.parts[0] == "cp" else {}
        for part in self.parts:
            degrees |= PARTS[part].degrees
        return degrees

    @property
    def ranks(self) -> int:
        """The fewest processes that show all of it at work."""
        return prod(PARTS[part].ranks for part in self.parts)

    def parameters(self, **options: Any) -> Any:
        """The `DeviceParameters` of this mode, made by the shipped runtime."""
        parameters = _contract().DeviceParameters
        make = getattr(parameters, self.preset) if self.preset else parameters
        return make(**self.degrees, **options)

    def hooks(self, **options: Any) -> list[str]:
        """The hooks that the runtime calls, in its order.

        Asks the runtime's own contract, so that no rule about hooks is written twice.
        """
        parameters = self.parameters(**options)
        contract = _contract()
        return [
            hook.name
            for hook in contract.HOOKS
            if contract.callers(hook, parameters, parameters.degrees)
        ]


def read_mode(value: str) -> Mode:
    """The mode that a value of `--parallel` names, in whatever order.

    Raises `DreamError` where a part is unknown or parts contradict each other.
    """
    given = value.split("+")
    flag = "--parallel" if len(given) == 1 else f"--parallel {value}:"
    for part in given:
        check_choice(flag, part, PARTS, SEVERAL)
    mode = Mode(tuple(part for part in PARTS if part in given))
    for part in mode.parts:
        if given.count(part) > 1:
            raise DreamError(f"--parallel {value} names {part} twice.", f"Use {mode.name}.")
    _refuse_contradictions(value, mode)
    return mode


def _refuse_contradictions(value: str, mode: Mode) -> None:
    exclusive = [part for part in mode.parts if PARTS[part].preset or "single" in mode.parts]
    if len(exclusive) > 1:
        meanings = ", and ".join(PARTS[part].meaning for part in exclusive[:2])
        raise DreamError(
            f"--parallel {value} contradicts itself: {meanings}.",
            f"Use one of {', '.join(exclusive)}.",
        )
    splits = mode.parts[1:]
    if mode.parts[0] == "ddp" and ("cp" in splits or "tp" in splits):
        instead = " or ".join("+".join([data, *splits]) for data in ("fsdp", "hsdp"))
        raise DreamError(f"--parallel {value}: {_against_ddp(mode)}", f"Use {instead}.")


def _against_ddp(mode: Mode) -> str:
    """Why whole copies of the model do not go with the other axes, in the runtime's words."""
    contract = _contract()
    parameters = contract.DeviceParameters(dp_replicate="auto", **mode.degrees)
    found = contract.problems(parameters, parameters.degrees, contract.BY_NAME, "")
    if found:
        return str(found[0].fact)
    return "ranks that share a sequence shard the model, and ddp keeps it whole."


def _contract() -> Any:
    return resources.load_runtime("contract")
