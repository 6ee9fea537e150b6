"""Run a project's own dry run in the environment that has its torch."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ..errors import DreamError

HAS_TORCH = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"


def dry_run(arguments: Sequence[str]) -> int:
    """`python train.py dry-run ...` with the project's python; its exit code.

    The first of `arguments` may name the script. Raises `DreamError` where there is no
    script or no torch.
    """
    script, rest = "train.py", list(arguments)
    if rest and rest[0].endswith(".py"):
        script = rest.pop(0)
    path = Path(script)
    if not path.is_file():
        raise DreamError(
            f"There is no {script} here.",
            "Run it in the project's folder, or name the script: dream dry-run my-lm/train.py",
        )
    python = project_python(path.resolve().parent)
    if subprocess.run([python, "-c", HAS_TORCH], check=False).returncode:
        raise DreamError(
            f"A dry run needs torch, which {python} does not have.",
            "Install the project into its environment, or activate the one that has torch.",
        )
    return subprocess.run([python, script, "dry-run", *rest], check=False).returncode


def project_python(folder: Path) -> str:
    """The python of the `.venv` beside or above the script, else of the active environment."""
    active = os.environ.get("VIRTUAL_ENV")
    places = [*(place / ".venv" for place in (folder, *folder.parents))]
    if active:
        places.append(Path(active))
    found = (place / "bin" / "python" for place in places)
    return next((str(python) for python in found if python.exists()), sys.executable)
