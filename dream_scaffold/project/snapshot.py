"""What was generated, kept in the project: a later update tells edits from it.

`.dream/base/` holds the text of every file that its owner is likely to edit,
`.dream/runtime.zip` that of the vendored runtime, and `.dream/hashes.sha256` the hash of
every file, as `sha256sum --check` reads it.
"""

import shutil
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

from .. import resources
from .render import RUNTIME

FOLDER = ".dream"
BASE, ARCHIVE, HASHES = "base", "runtime.zip", "hashes.sha256"
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of every entry of the archive: the same runtime is the same bytes."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """What was generated, as far as it is known."""

    files: dict[str, bytes] = field(default_factory=dict)
    """Path -> its text, whose hash is right."""

    lost: frozenset[str] = frozenset()
    """Paths that were generated, and whose text is missing or has been changed."""


def write_snapshot(project: Path) -> None:
    """Record every file of `project`, which nobody has edited yet."""
    lines = []
    runtime: dict[str, bytes] = {}
    for path in sorted(path for path in project.rglob("*") if path.is_file()):
        name = path.relative_to(project)
        if name.parts[0] == FOLDER:
            continue
        content = path.read_bytes()
        lines.append(f"{sha256(content).hexdigest()}  {name.as_posix()}\n")
        if name.parts[0] == RUNTIME:
            runtime[name.as_posix()] = content
            continue
        copy = project / FOLDER / BASE / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    with ZipFile(project / FOLDER / ARCHIVE, "w", ZIP_DEFLATED) as archive:
        for file, content in runtime.items():
            archive.writestr(ZipInfo(file, EPOCH), content, ZIP_DEFLATED)
    (project / FOLDER / HASHES).write_text("".join(lines), encoding="utf-8", newline="\n")


def read_snapshot(project: Path) -> Snapshot:
    """The texts that were generated, each held against its hash.

    A file of the runtime that the archive lacks is the shipped one, if that has its hash.
    """
    folder = project / FOLDER
    try:
        lines = (folder / HASHES).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        lines = []
    hashes = {name: digest for digest, _, name in (line.partition("  ") for line in lines) if name}
    found = _read_archive(folder / ARCHIVE)
    for path in sorted((folder / BASE).rglob("*")):
        if path.is_file():
            found[path.relative_to(folder / BASE).as_posix()] = path.read_bytes()
    files = _as_recorded(found, hashes)
    shipped = {
        name: path.read_bytes()
        for name in hashes
        if name.startswith(f"{RUNTIME}/") and name not in files
        if (path := resources.runtime().parent / name).is_file()
    }
    files |= _as_recorded(shipped, hashes)
    return Snapshot(files=files, lost=frozenset({*hashes, *found} - set(files)))


def _as_recorded(texts: dict[str, bytes], hashes: dict[str, str]) -> dict[str, bytes]:
    """Those of `texts` that have the recorded hash."""
    return {
        name: content
        for name, content in texts.items()
        if hashes.get(name) == sha256(content).hexdigest()
    }


def _read_archive(path: Path) -> dict[str, bytes]:
    try:
        with ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    except (OSError, BadZipFile, KeyError, ValueError):
        return {}
