"""Looking at checkpoints: which there are, whether they are whole, how two of them differ."""

import time
from typing import Any

from .manifest import Checkpoint, Manifest, checkpoints, folder_of, unfinished
from .store import Store


def runs(root_dir: str) -> list[str]:
    """The runs below `root_dir` that have a folder of checkpoints, by name."""
    return sorted(n for n in Store(root_dir).folders() if Store(folder_of(root_dir, n)).folders())


def rows(root_dir: str, run: str, monitor: str, read: bool) -> list[dict[str, Any]]:
    """What to tell of each checkpoint of a run, newest first; `read` compares every byte."""
    store = Store(folder_of(root_dir, run))
    found = []
    for checkpoint in checkpoints(store):
        manifest = checkpoint.manifest
        problems = checkpoint.problems() if read else checkpoint.wrong_sizes()
        found.append(
            {
                "run": run,
                "step": manifest.step,
                "epoch": manifest.epoch,
                monitor: manifest.metrics.get(monitor),
                "bytes": manifest.size,
                "created": manifest.created,
                "ranks": manifest.world_size,
                "mesh": mesh(manifest),
                "problems": problems,
                "path": checkpoint.url,
            }
        )
    leftovers = [{"run": run, "path": store.url(n), "unfinished": True} for n in unfinished(store)]
    return found + leftovers


def table(found: list[dict[str, Any]], monitor: str, read: bool) -> str:
    """The rows as aligned text."""
    head = ("run", "step", "epoch", monitor, "size", "age", "mesh", "state")
    good = "verified" if read else "complete"
    lines = [head]
    for row in found:
        if row.get("unfinished"):
            name = str(row["path"]).rpartition("/")[2]
            lines.append((row["run"], "", "", "", "", "", "", f"unfinished: {name}"))
            continue
        value = row[monitor]
        lines.append(
            (
                row["run"],
                str(row["step"]),
                str(row["epoch"]),
                "" if value is None else f"{value:.4g}",
                size(row["bytes"]),
                age(time.time() - row["created"]),
                row["mesh"],
                "damaged: " + "; ".join(row["problems"]) if row["problems"] else good,
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    padded = ("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) for line in lines)
    return "\n".join(line.rstrip() for line in padded)


def difference(one: Checkpoint, other: Checkpoint) -> list[str]:
    """How the tensors of two checkpoints differ in name, shape and type; a line each."""
    mine, theirs = one.manifest.tensors, other.manifest.tensors
    lines = [f"- {key}  {_tensor(mine[key])}" for key in sorted(mine.keys() - theirs.keys())]
    lines += [f"+ {key}  {_tensor(theirs[key])}" for key in sorted(theirs.keys() - mine.keys())]
    for key in sorted(mine.keys() & theirs.keys()):
        if _tensor(mine[key]) != _tensor(theirs[key]):
            lines.append(f"~ {key}  {_tensor(mine[key])} -> {_tensor(theirs[key])}")
    return lines


def mesh(manifest: Manifest) -> str:
    """The axes that are wider than one rank."""
    wide = [f"{axis}={degree}" for axis, degree in manifest.axes.items() if degree > 1]
    return " ".join(wide) or "one device"


def size(count: int) -> str:
    """Bytes, as people read them."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def age(seconds: float) -> str:
    """A length of time, in the largest unit that fits."""
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"


def _tensor(described: tuple[str, list[int]]) -> str:
    dtype, shape = described
    return f"{dtype}{list(shape)}"
