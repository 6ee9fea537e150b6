"""Correct projects give nothing; broken in one of many ways, each break is found at its line."""

from collections.abc import Callable
from pathlib import Path

import pytest
from mutations import MUTATIONS, Mutation

from dream_scaffold.check import Options, check

GOLDEN = Path(__file__).parents[1] / "templates" / "golden"
PROJECTS = {
    folder.name: {path.name: path.read_text() for path in sorted(folder.glob("*.py"))}
    for folder in sorted(GOLDEN.iterdir())
}
SEVERE = ("error", "warning")


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], None]:
    monkeypatch.chdir(tmp_path)

    def write_files(files: dict[str, str]) -> None:
        for name, text in files.items():
            (tmp_path / name).write_text(text)

    return write_files


@pytest.mark.parametrize("name", PROJECTS)
def test_a_correct_project_gives_nothing(
    name: str, write: Callable[[dict[str, str]], None]
) -> None:
    write(PROJECTS[name])
    findings = check(Options(paths=("train.py",), strict=True)).findings
    # A mode whose plan only the owner of a model can write says so.
    owed = [finding for finding in findings if finding.code == "DT202"]
    assert [str(finding) for finding in findings if finding not in owed] == []
    assert all("NotImplementedError" in PROJECTS[name]["train.py"] for _ in owed)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: f"{m.code} {m.name}")
def test_a_break_is_found(mutation: Mutation, write: Callable[[dict[str, str]], None]) -> None:
    tried = 0
    for name, files in PROJECTS.items():
        broken = mutation.apply(name, files)
        if broken is None:
            continue
        tried += 1
        texts, expected = broken
        write(texts)
        found = [
            (finding.code, finding.place.path, finding.place.line)
            for finding in check(Options(paths=("train.py",))).findings
            if finding.severity in SEVERE
        ]
        assert tuple(expected) in found, f"{name}: {found}"
    assert tried, "no project can be broken so"
