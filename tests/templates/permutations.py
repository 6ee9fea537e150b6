"""Every project that `dream new` can make, rendered; run as a script, it renews the goldens."""

import shutil
import tempfile
from itertools import product
from pathlib import Path

from dream_scaffold.project.options import MODES, RECIPES, Options
from dream_scaffold.project.render import RUNTIME, render_project

GOLDEN = Path(__file__).parent / "golden"
NAME = "my-project"

PERMUTATIONS = {
    f"{recipe}-{parallel}{'-compile' if compile else ''}": Options(
        name=NAME, parallel=parallel, recipe=recipe, compile=compile
    )
    for recipe, parallel, compile in product(RECIPES, MODES, (False, True))
}


def render_all(folder: Path) -> dict[str, Path]:
    """Render every permutation into a folder of its own."""
    projects = {name: folder / name / NAME for name in PERMUTATIONS}
    for name, project in projects.items():
        project.mkdir(parents=True)
        render_project(PERMUTATIONS[name], project)
    return projects


def text_files(project: Path) -> dict[str, str]:
    """What the template wrote: every file but the runtime's, by its path."""
    return {
        path.relative_to(project).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(project.rglob("*"))
        if path.is_file()
        and not {RUNTIME, "__pycache__"}.intersection(path.relative_to(project).parts)
    }


def renew_goldens() -> None:
    """Make the goldens what the template gives now; review them with `git diff`."""
    shutil.rmtree(GOLDEN, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, project in render_all(Path(folder)).items():
            for path, text in text_files(project).items():
                golden = GOLDEN / name / path
                golden.parent.mkdir(parents=True, exist_ok=True)
                golden.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    renew_goldens()
