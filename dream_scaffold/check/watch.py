"""`--watch`: the check again, whenever a file of the project changes."""

import os
import sys
import time
from collections.abc import Callable

from .options import Options
from .source import project_root, python_files

PAUSE = 0.4
"""Seconds between two looks at the files."""


def watch(options: Options, check: Callable[[], int]) -> int:
    """Check until Ctrl-C; the last exit code."""
    code = 0
    seen: dict[str, tuple[int, int]] = {}
    try:
        while True:
            now = _stamps(options)
            if now != seen:
                changed = [path for path in now if seen and now[path] != seen.get(path)]
                gone = [path for path in seen if path not in now]
                shown = ", ".join(os.path.relpath(path) for path in (*changed, *gone)[:3])
                if seen:
                    print(f"\n-- {time.strftime('%H:%M:%S')}  {shown}", flush=True)
                seen = now
                code = check()
                sys.stdout.flush()
            time.sleep(PAUSE)
    except KeyboardInterrupt:
        return code


def _stamps(options: Options) -> dict[str, tuple[int, int]]:
    """Path -> when it was changed, and its size."""
    stamps: dict[str, tuple[int, int]] = {}
    for path in options.paths or (".",):
        folder = os.path.abspath(path if os.path.isdir(path) else os.path.dirname(path) or ".")
        root = project_root(folder) or folder
        for file in (*python_files(folder), os.path.join(root, "pyproject.toml")):
            try:
                state = os.stat(file)
            except OSError:
                continue
            stamps[file] = (state.st_mtime_ns, state.st_size)
    return stamps
