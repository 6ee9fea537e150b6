"""What one probe found."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "note", "bad"]
"""`note`: worth knowing, not in the way. `bad`: a run will fail or be slow."""


@dataclass(frozen=True)
class Reading:
    """One line of the report."""

    topic: str
    name: str
    state: State
    text: str
    remedy: str = ""


Probe = Callable[[], Iterator[Reading]]


def take(topic: str, probe: Probe) -> list[Reading]:
    """What a probe finds; one that fails is itself a note, and spoils no other."""
    try:
        return list(probe())
    except Exception as error:
        told = f"could not be looked at: {type(error).__name__}: {error}".strip(": ")
        return [Reading(topic, topic, "note", told)]


def size(count: float) -> str:
    """A number of bytes as people write it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
