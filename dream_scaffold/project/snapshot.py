"""What was generated, kept in the project: a later update tells edits from it.

`.dream/base/` holds the text of every file that its owner is likely to edit, and
`.dream/hashes.sha256` the hash of every file, the runtime's too, as `sha256sum --check`
reads it.
"""

import shutil
from hashlib import sha256
from pathlib import Path

from .render import RUNTIME

FOLDER = ".dream"


def write_snapshot(project: Path) -> None:
    """Record every file of `project`, which nobody has edited yet."""
    lines = []
    for path in sorted(path for path in project.rglob("*") if path.is_file()):
        name = path.relative_to(project)
        if name.parts[0] == FOLDER:
            continue
        lines.append(f"{sha256(path.read_bytes()).hexdigest()}  {name.as_posix()}\n")
        if name.parts[0] != RUNTIME:
            copy = project / FOLDER / "base" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    (project / FOLDER / "hashes.sha256").write_text("".join(lines), encoding="utf-8", newline="\n")
