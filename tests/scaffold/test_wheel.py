"""An installed wheel does what a checkout does: it carries the template and the runtime."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [built] = folder.glob("*.whl")
    return built


def tracked(folder: str) -> set[str]:
    return {
        path.relative_to(ROOT / folder).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_it_carries_every_file_of_template_and_runtime(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("templates", "runtime/dream_trainer"):
        prefix = f"dream_scaffold/_data/{folder}/"
        carried = {name.removeprefix(prefix) for name in names if name.startswith(prefix)}
        assert carried == tracked(folder)
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"dream_scaffold"}


def test_it_makes_and_checks_the_same_project(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)

    def dream(*arguments: str, source: Path, folder: Path) -> str:
        folder.mkdir(exist_ok=True)
        done = subprocess.run(
            [sys.executable, "-m", "dream_scaffold", *arguments],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(source)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    new = ["new", "my-lm", "--parallel", "hsdp", "--no-git"]
    said = [
        dream(*new, source=source, folder=tmp_path / name)
        for name, source in {"wheel": site, "checkout": ROOT}.items()
    ]
    assert said[0] == said[1]
    hashes = [
        (tmp_path / name / "my-lm/.dream/hashes.sha256").read_text()
        for name in ("wheel", "checkout")
    ]
    assert hashes[0] == hashes[1]
    dream("check", source=site, folder=tmp_path / "wheel" / "my-lm")
