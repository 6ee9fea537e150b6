"""Projects that `dream new` makes, rendered; run as a script, it renews the goldens."""

import shutil
import tempfile
from pathlib import Path

from dream_scaffold.project.options import Options
from dream_scaffold.project.recipes import RECIPES
from dream_scaffold.project.render import RUNTIME, render_project

GOLDEN = Path(__file__).parent / "golden"
NAME = "my-project"

DATA = ("single", "ddp", "fsdp", "hsdp")
SPLITS = ("cp", "tp", "pp")
PAIRS = ("fsdp+cp", "fsdp+tp", "hsdp+tp", "ddp+pp", "cp+tp", "cp+pp", "tp+pp")
THREE, ALL = "fsdp+tp+pp", "fsdp+cp+tp+pp"

MODES = {
    "lm": {
        False: (*DATA, *SPLITS, *PAIRS, THREE, ALL),
        True: (*DATA, "fsdp+tp"),
    },
    "vision": {
        False: (*DATA, "tp", "fsdp+tp"),
        True: ("fsdp",),
    },
    "gan": {
        False: DATA,
        True: ("ddp",),
    },
    "finetune": {
        False: DATA,
        True: ("fsdp",),
    },
    "blank": {
        False: (*DATA, *SPLITS, "fsdp+tp", ALL),
        True: DATA,
    },
}
"""Recipe -> compiled or not -> modes: each axis alone, pairs, and all of them together."""

CHECKPOINTED = (
    ("lm", "fsdp"),
    ("lm", ALL),
    ("vision", "ddp"),
    ("gan", "fsdp"),
    ("finetune", "ddp"),
    ("blank", "single"),
)

PERMUTATIONS = (
    {
        f"{recipe}-{parallel}{'-compile' if compile else ''}": Options(
            name=NAME, parallel=parallel, recipe=recipe, compile=compile
        )
        for recipe in RECIPES
        for compile, modes in MODES[recipe].items()
        for parallel in modes
    }
    | {
        f"{recipe}-{parallel}-ckpt-acts": Options(
            name=NAME, parallel=parallel, recipe=recipe, ckpt_acts=True
        )
        for recipe, parallel in (
            ("lm", "fsdp"),
            ("lm", ALL),
            ("vision", "ddp"),
            ("gan", "fsdp"),
            ("blank", "single"),
        )
    }
    | {
        # Each preset has files and lines of its own, whatever recipe and mode are.
        "lm-fsdp-presets": Options(
            name=NAME,
            parallel="fsdp",
            tracker="wandb",
            launch="torchrun,slurm,kubernetes,skypilot",
            ci="github",
            docker=True,
            license="apache-2.0",
        )
    }
)


def places(folder: Path) -> dict[str, Path]:
    """Where the project of each permutation lies."""
    return {name: folder / name / NAME for name in PERMUTATIONS}


def render_all(folder: Path) -> dict[str, Path]:
    """Render every permutation into a folder of its own."""
    projects = places(folder)
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
        and not {RUNTIME, "__pycache__", "runs"}.intersection(path.relative_to(project).parts)
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
