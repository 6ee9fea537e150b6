"""What a dry run found, for people and for programs."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..configs import Axes

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong. `code` is the rule's of `dream check`, where there is one."""

    code: str
    text: str
    place: str = ""
    """Where in the project, as file:line; empty where no line is to blame."""


@dataclass(frozen=True)
class AxisRow:
    """One axis of the mesh, seen from this rank."""

    axis: str
    size: int
    place: int
    """This rank's coordinate."""

    first: int
    stride: int
    """This rank shares the axis with `first`, `first + stride`, ...: `size` ranks."""

    crosses_nodes: bool

    @property
    def ranks(self) -> range:
        return range(self.first, self.first + self.size * self.stride, self.stride)


@dataclass(frozen=True)
class CollectiveRow:
    """What one step does on one axis: how often, and the bytes of the whole tensors."""

    axis: str
    operation: str
    count: int
    bytes: int
    crosses_nodes: bool


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes that this rank holds."""

    parameters: int
    buffers: int
    gradients: int
    optimizer: int
    activations: int
    """The most at any moment: what autograd keeps, and what the forward pass makes."""

    gathered: int
    """The most at any moment: FSDP's buffers for whole parameters and gradients."""

    peak: int
    """All of the above and what passes by, at the fullest moment of a step."""

    at_peak: dict[str, int]
    """What `peak` consists of; "model" are parameters and buffers, "other" gradients and
    what backward and the optimizer make on the way."""

    host: int = 0
    """How much of it is in host memory (`cpu_offload`)."""

    limit: int | None = None

    @property
    def device(self) -> int:
        """What has to fit the device."""
        return self.peak - self.host

    @property
    def fits(self) -> bool | None:
        return None if self.limit is None else self.device <= self.limit


@dataclass
class Report:
    """A dry run of rank `rank` of `world_size`; what it could not reach is missing."""

    rank: int
    world_size: int
    local_world_size: int
    mesh: list[AxisRow] = field(default_factory=list)
    parameters: int = 0
    """Of all of this rank's models, unsharded; under pp, of its stages."""

    memory: Memory | None = None
    collectives: list[CollectiveRow] = field(default_factory=list)
    errors: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.errors

    def add(self, code: str, text: str, place: str = "") -> None:
        self.errors.append(Finding(code, text, place))

    def as_json(self) -> str:
        """The report as one JSON object; sizes are bytes."""
        record: dict[str, Any] = {"version": 1, "ok": self.ok} | asdict(self)
        if self.memory is not None:
            record["memory"] |= {"device": self.memory.device, "fits": self.memory.fits}
        return json.dumps(record, indent=2)

    def as_text(self) -> str:
        """The report as aligned lines."""
        parts = [self._mesh(), self._memory(), self._collectives(), self._findings()]
        return "\n\n".join(part for part in parts if part)

    def _mesh(self) -> str:
        nodes = self.world_size // self.local_world_size
        title = f"rank {self.rank} of {self.world_size:,}"
        if nodes > 1:
            title += f", on {nodes:,} nodes of {self.local_world_size}"
        if not self.mesh:
            return title
        rows = [("axis", "size", "place", "ranks along it", "")]
        for row in self.mesh:
            ranks, reach = along(row.ranks), reach_of(row.crosses_nodes)
            rows.append((row.axis, f"{row.size:,}", str(row.place), ranks, reach))
        first = self.rank - self.rank % self.local_world_size
        node = [
            f"[{rank}]" if rank == self.rank else str(rank)
            for rank in range(first, first + self.local_world_size)
        ]
        shown = node if len(node) <= 16 else [*node[:8], "...", *node[-4:]]
        drawn = f"node {first // self.local_world_size}: {' '.join(shown)}"
        return "\n".join([title, *aligned(rows, right=(1, 2)), f"  {drawn}"])

    def _memory(self) -> str:
        memory = self.memory
        if memory is None:
            return ""
        rows = [
            ("parameters", size(memory.parameters), f"of {self.parameters:,} elements unsharded"),
            ("gradients", size(memory.gradients), ""),
            ("optimizer state", size(memory.optimizer), ""),
            ("buffers", size(memory.buffers), ""),
            ("activations", size(memory.activations), "at most"),
            ("gathered by FSDP", size(memory.gathered), "at most"),
            ("peak", size(memory.peak), composition(memory.at_peak)),
        ]
        if memory.host:
            rows.append(("in host memory", size(memory.host), "by cpu_offload"))
            rows.append(("on the device", size(memory.device), ""))
        if memory.limit is not None:
            verdict = "fits" if memory.fits else "DOES NOT FIT"
            rows.append(("limit", size(memory.limit), verdict))
        return "\n".join(["memory of this rank", *aligned(rows, right=(1,))])

    def _collectives(self) -> str:
        if not self.collectives:
            return ""
        rows = [("axis", "operation", "count", "bytes", "")]
        for row in self.collectives:
            count, reach = str(row.count), reach_of(row.crosses_nodes)
            rows.append((row.axis, row.operation, count, size(row.bytes), reach))
        return "\n".join(["collectives of one step", *aligned(rows, right=(2, 3))])

    def _findings(self) -> str:
        lines = [f"note: {note}" for note in self.notes]
        for finding in self.errors:
            place = f"\n  --> {finding.place}" if finding.place else ""
            lines.append(f"error: {finding.text} [{finding.code}]{place}")
        count = len(self.errors)
        verdict = f"{count} error{'s' if count > 1 else ''}" if count else "nothing wrong"
        return "\n".join([*lines, verdict])


def mesh_rows(axes: Axes, rank: int, local_world_size: int) -> list[AxisRow]:
    """The axes in use, outermost first, as `rank` sees them."""
    rows = []
    stride = axes.world_size
    for axis, size_ in axes.sizes.items():
        stride //= size_
        place = rank // stride % size_
        first = rank - place * stride
        across = crosses(range(first, first + size_ * stride, stride), local_world_size)
        if size_ > 1:
            rows.append(AxisRow(axis, size_, place, first, stride, across))
    return rows


def crosses(ranks: Iterable[int], local_world_size: int) -> bool:
    """Whether `ranks` lie on more than one node."""
    return len({rank // local_world_size for rank in ranks}) > 1


def reach_of(crosses_nodes: bool) -> str:
    return "between nodes" if crosses_nodes else "inside a node"


def along(ranks: Sequence[int]) -> str:
    """Evenly spaced ranks in a few words."""
    if len(ranks) <= 4:
        return ", ".join(map(str, ranks))
    return f"{ranks[0]}, {ranks[1]}, {ranks[2]} ... {ranks[-1]}"


def size(count: float) -> str:
    """Bytes in the unit that leaves one to four digits: `13.2 MiB`."""
    unit = 0
    while count >= 1024 and unit < len(UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.0f} {UNITS[unit]}" if unit == 0 else f"{count:,.1f} {UNITS[unit]}"


def parse_size(text: str) -> int:
    """Bytes from `80GiB`, `40 GB` or a plain number. Raises `ValueError`."""
    number = text.strip().rstrip("KMGTiBkmgtb ")
    unit = text.strip()[len(number) :].strip().lower()
    factors = {"": 1, "b": 1}
    for power, letter in enumerate("kmgt", start=1):
        factors |= {f"{letter}ib": 1024**power, f"{letter}b": 1000**power, letter: 1024**power}
    try:
        return int(float(number) * factors[unit])
    except (ValueError, KeyError):
        raise ValueError(f"{text!r} is not a size. Write it as 80GiB or 40GB.") from None


def composition(parts: dict[str, int]) -> str:
    """The parts of a sum, largest first, without those below a hundredth of it."""
    largest = sorted(parts.items(), key=lambda item: -item[1])
    shown = [f"{name} {size(n)}" for name, n in largest if n * 100 >= sum(parts.values())]
    return " + ".join(shown)


def aligned(rows: Sequence[tuple[str, ...]], right: Sequence[int] = ()) -> list[str]:
    """The rows with every column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "  ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
