"""What a checkpoint says of itself, and which checkpoints there are.

    runs/<experiment>/checkpoints/step-00000120/
        manifest.json       written last: without it nothing counts
        .metadata           DCP's: which tensor lies where
        __0_0.distcp ...    DCP's: what each rank wrote

On this machine a folder is called `….unfinished` until it is whole, and then renamed. Stores
that cannot rename a folder at once write `manifest.json` last: the same test tells both.
"""

import dataclasses
import json
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from ..configs import RunError
from .store import Store

MANIFEST = "manifest.json"
UNFINISHED = ".unfinished"
DAMAGED = ".damaged"
NAME = re.compile(r"step-\d{8,}")
FORMAT = 1

Mode = Literal["min", "max", "last"]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """One checkpoint: when, how far, on which mesh, and what belongs to it."""

    step: int
    epoch: int
    """Finished epochs."""

    experiment: str
    created: float
    """Seconds since 1970."""

    world_size: int
    axes: dict[str, int]
    metrics: dict[str, float] = field(default_factory=dict)
    """The newest value of everything that had been logged."""

    progress: dict[str, Any] = field(default_factory=dict)
    """The counters of the loop."""

    tensors: dict[str, tuple[str, list[int]]] = field(default_factory=dict)
    """Key -> (dtype, shape of the whole tensor)."""

    files: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Name -> (bytes, CRC-32)."""

    format: int = FORMAT

    def as_json(self) -> bytes:
        """With a checksum of the rest: nothing else vouches for this file."""
        values = dataclasses.asdict(self)
        return _as_text(values | {"checksum": zlib.crc32(_as_text(values))})

    @classmethod
    def from_json(cls, text: bytes) -> "Manifest":
        """Raises `ValueError` for what is no manifest of this format."""
        values = json.loads(text)
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise ValueError("not a manifest of this version")
        checksum = values.pop("checksum", None)
        if checksum is not None and checksum != zlib.crc32(_as_text(values)):
            raise ValueError("damaged: its checksum has changed")
        names = {f.name for f in dataclasses.fields(cls)}
        try:
            manifest = cls(**{name: value for name, value in values.items() if name in names})
        except TypeError as error:
            raise ValueError(str(error)) from error
        pairs = {name: (size, crc) for name, (size, crc) in manifest.files.items()}
        return dataclasses.replace(manifest, files=pairs)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for size, _ in self.files.values())


def _as_text(values: dict[str, Any]) -> bytes:
    return json.dumps(values, indent=1).encode()


@dataclass(frozen=True)
class Checkpoint:
    """A finished checkpoint: the folder `name` of `store`."""

    store: Store
    name: str
    manifest: Manifest

    @property
    def url(self) -> str:
        return self.store.url(self.name)

    def wrong_sizes(self) -> list[str]:
        """What is missing or of another size, each as a sentence; reads no file."""
        sizes = self.store.files(self.name)
        return [
            f"{name} is missing"
            if name not in sizes
            else f"{name} has {sizes[name]:,} bytes of {size:,}"
            for name, (size, _) in self.manifest.files.items()
            if sizes.get(name) != size
        ]

    def wrong_contents(self, names: Iterable[str]) -> list[str]:
        """Which of the files `names` are not as they were written."""
        found = []
        for name in names:
            try:
                crc = self.store.checksum(f"{self.name}/{name}")
            except OSError as error:
                found.append(f"{name} cannot be read: {error}")
                continue
            if crc != self.manifest.files[name][1]:
                found.append(f"{name} is damaged: its checksum has changed")
        return found

    def remove(self) -> None:
        """The manifest goes first: what a kill leaves over is no checkpoint."""
        self.store.remove(self.name, first=MANIFEST)

    def set_aside(self) -> None:
        """Make room for another checkpoint of this step, since this one is damaged."""
        set_aside(self.store, self.name)

    def problems(self, rank: int = 0, ranks: int = 1) -> list[str]:
        """What is wrong with it; empty where it verifies. Reads every `ranks`-th file whole."""
        share = sorted(self.manifest.files)[rank::ranks]
        return self.wrong_sizes() or self.wrong_contents(share)


def folder_of(root_dir: str, experiment: str) -> str:
    """Where the checkpoints of a run lie."""
    return f"{root_dir.rstrip('/')}/{experiment}/checkpoints"


def name_of(step: int) -> str:
    return f"step-{step:08d}"


def checkpoints(store: Store) -> list[Checkpoint]:
    """The finished checkpoints of a folder, the newest first; their files are not looked at."""
    names = [name for name in store.folders() if NAME.fullmatch(name)]
    opened = [open_checkpoint(store, name) for name in names]
    found = [checkpoint for checkpoint in opened if checkpoint is not None]
    return sorted(found, key=lambda checkpoint: checkpoint.manifest.step, reverse=True)


def open_checkpoint(store: Store, name: str) -> Checkpoint | None:
    """The checkpoint in folder `name`; None where it is not finished."""
    try:
        return Checkpoint(store, name, Manifest.from_json(store.read(f"{name}/{MANIFEST}")))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def set_aside(store: Store, name: str) -> None:
    """Keep a damaged folder under another name, where the store can; of a step the newest."""
    if not store.is_local:
        store.remove(name, first=MANIFEST)
        return
    if name + DAMAGED in store.folders():
        store.remove(name + DAMAGED)
    store.rename(name, name + DAMAGED)


def unfinished(store: Store) -> list[str]:
    """The folders that a save did not finish, or that a removal has begun with."""
    finished = {checkpoint.name for checkpoint in checkpoints(store)}
    return [
        name
        for name in store.folders()
        if NAME.fullmatch(name.removesuffix(UNFINISHED)) and name not in finished
    ]


def ranked(found: list[Checkpoint], monitor: str, mode: Mode) -> list[Checkpoint]:
    """Best first: by the metric `monitor`, or "last" by age. Without the metric comes last."""
    if mode == "last":
        return sorted(found, key=lambda c: c.manifest.step, reverse=True)
    sign = 1 if mode == "min" else -1

    def key(checkpoint: Checkpoint) -> tuple[bool, float, int]:
        value = checkpoint.manifest.metrics.get(monitor)
        known = value is not None and value == value  # A nan is no best value.
        return (not known, sign * value if known else 0.0, -checkpoint.manifest.step)  # type: ignore[operator]

    return sorted(found, key=key)


def superfluous(found: list[Checkpoint], keep: int, monitor: str, mode: Mode) -> list[Checkpoint]:
    """What goes where the `keep` best are kept, and always the newest."""
    newest = ranked(found, monitor, "last")[:1]
    return [c for c in ranked(found, monitor, mode)[keep:] if c not in newest]


def find(
    source: str, monitor: str = "", mode: Mode = "last", *, demanded: bool = False
) -> Checkpoint:
    """The checkpoint that `source` names: itself, or the best of a run or of its folder.

    Where no checkpoint knows `monitor` the newest is taken, or refused if it is `demanded`.
    Raises `RunError` where there is none.
    """
    parent, _, name = source.rstrip("/").rpartition("/")
    if checkpoint := open_checkpoint(Store(parent or "."), name):
        return checkpoint
    for folder in (source, f"{source.rstrip('/')}/checkpoints"):
        if found := checkpoints(Store(folder)):
            if demanded and not any(monitor in c.manifest.metrics for c in found):
                raise RunError(
                    f"No checkpoint in {folder} knows {monitor!r}, by which the best is chosen. "
                    f"They know: {', '.join(sorted(found[0].manifest.metrics)) or 'nothing'}."
                )
            return ranked(found, monitor, mode)[0]
    raise RunError(f"{source} holds no finished checkpoint.")
