"""`dream check` in a process of its own that cannot take the machine with it."""

import os
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import NamedTuple

from dream_scaffold.check import Options, session

PATIENCE = 60
"""Seconds until a check that does not end is given up: a safety net, no measure."""

MEMORY = 1 << 30
"""Bytes that a check may take beyond what the process has already."""

CRASHED, ENDLESS = "crashed", "endless"


class Answer(NamedTuple):
    """How a check ended, and what it printed."""

    end: int | str
    """The exit code, or `CRASHED`, or `ENDLESS`."""

    text: str

    @property
    def is_one(self) -> bool:
        return self.end in (0, 1, 2) and "Traceback" not in self.text


def check_apart(folder: Path, *paths: str, **options: object) -> Answer:
    """The end of `dream check PATHS` in `folder`."""
    output = folder.parent / f"{folder.name}.output"
    child = os.fork()
    if child == 0:
        _check_and_leave(folder, paths, options, output)
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            text = output.read_text(errors="replace")
            return Answer(code if code in (0, 1, 2) else CRASHED, text)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return Answer(ENDLESS, output.read_text(errors="replace"))


def _check_and_leave(
    folder: Path, paths: tuple[str, ...], options: dict[str, object], output: Path
) -> None:
    code = 70
    try:
        written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(written, 1)
        os.dup2(written, 2)
        sys.stdout = os.fdopen(1, "w", errors="backslashreplace", closefd=False)
        sys.stderr = os.fdopen(2, "w", errors="backslashreplace", closefd=False)
        _limit_memory()
        os.chdir(folder)
        code = session.run(Options(**{"paths": paths, "verbose": True, **options}))  # type: ignore[arg-type]
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _limit_memory() -> None:
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
