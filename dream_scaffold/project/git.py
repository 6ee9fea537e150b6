"""The first commit of a new project."""

import os
import shutil
import subprocess
from pathlib import Path

MESSAGE = "Start from Dream Scaffold"

UNDER_A_NAME = ["-c", "user.name=dream new", "-c", "user.email=dream@localhost"]
"""For whoever has told git no name: one commit's author, stored nowhere."""

OF_A_REPOSITORY = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"}
"""Set while a git hook runs: they would point at the repository of that hook."""


def repository_around(folder: Path) -> Path | None:
    """The git repository that `folder` lies in, itself included."""
    return next((up for up in (folder, *folder.parents) if (up / ".git").exists()), None)


def commit_all(project: Path) -> str | None:
    """Make `project` a repository with one commit; return what hindered it, if anything.

    The user's hooks and signing are left out: they may ask, or run for minutes.
    """
    git = shutil.which("git")
    if git is None:
        return "git is not installed"
    quiet = ["-c", "core.hooksPath=/dev/null", "-c", "core.safecrlf=false"]
    commit = ["commit", "--quiet", "--no-verify", "--no-gpg-sign", "-m", MESSAGE]
    named = ["-c", "user.useConfigOnly=true"]
    try:
        _run([git, *quiet, "init", "--quiet"], project)
        _run([git, *quiet, "add", "--all", "--force"], project)
        try:
            _run([git, *quiet, *named, *commit], project)
        except subprocess.CalledProcessError:
            _run([git, *quiet, *UNDER_A_NAME, *commit], project)
    except subprocess.CalledProcessError as error:
        shutil.rmtree(project / ".git", ignore_errors=True)
        said = error.stderr.decode(errors="replace").strip().splitlines() or ["it failed"]
        return f"git says {said[-1]!r}"
    return None


def first_commit(project: Path, target: Path) -> str:
    """Commit, unless `target` belongs to a repository; say what was done."""
    if around := repository_around(target):
        return f"No commit was made: {os.fspath(around)} is a git repository already."
    hindrance = commit_all(project)
    if hindrance:
        return f"No commit was made: {hindrance}."
    return "Everything is committed to a new git repository."


def _run(command: list[str], folder: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name not in OF_A_REPOSITORY}
    subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True)
