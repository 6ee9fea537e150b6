"""What the tests' own launcher makes of a process that dies."""

import sys
from pathlib import Path

import pytest

from tests.conftest import run_bounded

SCRIPT = """
import pathlib, sys
count = pathlib.Path("count")
times = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(times))
if times == 1:
    sys.exit(sys.argv[1])
print(times)
"""


def test_damaged_memory_is_tried_once_more(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, "malloc(): unaligned tcache chunk detected"]
    with pytest.warns(UserWarning, match="aborted by damaged memory, run again"):
        done = run_bounded(command, cwd=tmp_path, timeout=60)
    assert (done.returncode, done.stdout) == (0, "2\n")


def test_any_other_failure_is_one(tmp_path: Path) -> None:
    done = run_bounded([sys.executable, "-c", SCRIPT, "wrong"], cwd=tmp_path, timeout=60)
    assert done.returncode == 1 and (tmp_path / "count").read_text() == "1"
