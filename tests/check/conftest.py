"""Small projects, written to a temporary folder and checked there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_projects import PRELUDE, split_files

from dream_scaffold.check import Options, Result, check


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """`project(text, **options)` writes the files of `text` and checks train.py.

    train.py begins with `PRELUDE`, unless `prelude=False`.
    """
    monkeypatch.chdir(tmp_path)

    def write_and_check(text: str, *, prelude: bool = True, **options: Any) -> Result:
        for name, content in split_files(text).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(PRELUDE + content if prelude and name == "train.py" else content)
        return check(Options(**{"paths": ("train.py",), **options}))

    return write_and_check
