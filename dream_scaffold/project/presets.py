"""What a project can be given beside its recipe: a tracker, launchers, CI, an image, a licence."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import PurePosixPath

from .choices import check_choice


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One value of a preset."""

    meaning: str
    advice: str
    """When to take it."""

    files: tuple[str, ...] = ()
    """Files or folders of the template that are there for it alone."""

    requires: tuple[str, ...] = ()
    """What its projects install beside the runtime's own needs."""


TRACKERS = {
    "none": Choice(
        meaning="log.jsonl and the terminal",
        advice="`python train.py report` draws the curves of runs.",
    ),
    "wandb": Choice(
        meaning="Weights & Biases as well",
        advice="Runs of a team, on a server; offline where there is no key.",
        requires=("wandb>=0.19",),
    ),
    "tensorboard": Choice(
        meaning="TensorBoard's files as well",
        advice="Curves while a run goes on, without a server of anyone's.",
        requires=("tensorboard>=2.18",),
    ),
}

ALWAYS = "torchrun"

LAUNCHERS = {
    ALWAYS: Choice(
        meaning="no file: the command is in train.py",
        advice="Always there: one node, or several that you log in to.",
    ),
    "slurm": Choice(
        meaning="a script for sbatch",
        advice="A cluster with a queue: saves before its time is up, and goes on.",
        files=("launch/slurm.sbatch",),
    ),
    "kubernetes": Choice(
        meaning="a Job and its Service",
        advice="A cluster with GPUs as resources; it needs no operator.",
        files=("launch/kubernetes.yaml",),
    ),
    "skypilot": Choice(
        meaning="a task for sky launch",
        advice="Machines of whatever cloud has them.",
        files=("launch/skypilot.yaml",),
    ),
}

WORKFLOWS = {
    "none": Choice(meaning="no workflow", advice="You check by hand, or elsewhere."),
    "github": Choice(
        meaning="dream check, ruff and pytest on every push",
        advice="The project is on GitHub; findings stand at their lines.",
        files=("github",),
    ),
}

IMAGES = {
    False: Choice(meaning="no image", advice="The environment is made where it runs."),
    True: Choice(
        meaning="a Dockerfile whose entry is torchrun",
        advice="Machines that run images, such as those of Kubernetes.",
        files=("Dockerfile", "dockerignore"),
    ),
}

LICENSES = {
    "none": Choice(meaning="no file", advice="It is yours alone, or has another one."),
    "mit": Choice(
        meaning="MIT",
        advice="Short: who keeps the notice may do anything.",
        files=("LICENSE",),
    ),
    "apache-2.0": Choice(
        meaning="Apache-2.0", advice="As MIT, with a grant of patents.", files=("LICENSE",)
    ),
    "bsd-3-clause": Choice(
        meaning="BSD-3-Clause",
        advice="As MIT, and nobody advertises with your name.",
        files=("LICENSE",),
    ),
}
"""The meaning is the name that SPDX has for it."""

SEVERAL = ", alone or joined by commas"


def read_launchers(value: str) -> tuple[str, ...]:
    """The launchers that a value of `--launch` names, in the order of `LAUNCHERS`.

    torchrun is one of them, said or not. Raises `DreamError` for one that is unknown.
    """
    given = [part.strip() for part in value.split(",")]
    for part in given:
        check_choice("--launch", part, LAUNCHERS, SEVERAL)
    return tuple(name for name in LAUNCHERS if name in given or name == ALWAYS)


def files_left_out(chosen: Collection[Choice]) -> list[str]:
    """Files and folders of the template that belong to none of what was chosen."""
    kept = {PurePosixPath(file) for choice in chosen for file in choice.files}
    every = (LAUNCHERS, WORKFLOWS, IMAGES, LICENSES)
    choices = [choice for preset in every for choice in preset.values()]
    left = {PurePosixPath(file) for choice in choices for file in choice.files} - kept
    folders = {file.parent for file in left} - {file.parent for file in kept}
    return sorted(str(path) for path in left | folders if path.name)
