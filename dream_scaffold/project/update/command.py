"""The `update` command: it parses, `run` does the rest."""

import os
from pathlib import Path
from typing import Annotated

import typer

from ..flags import (
    CheckpointActivations,
    Ci,
    Compile,
    Docker,
    Json,
    Launch,
    License,
    Parallel,
    Recipe,
    Tracker,
    given,
)

CONFLICTS = 1


def update_command(
    context: typer.Context,
    path: Annotated[str, typer.Argument(help="The project. Default: this folder.")] = ".",
    parallel: Parallel = None,
    recipe: Recipe = None,
    compile: Compile = None,
    ckpt_acts: CheckpointActivations = None,
    tracker: Tracker = None,
    launch: Launch = None,
    ci: Ci = None,
    docker: Docker = None,
    license: License = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; say what would happen.")
    ] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Show the changes line by line.")] = False,
    abort: Annotated[bool, typer.Option("--abort", help="Take the last update back.")] = False,
    as_json: Json = False,
) -> None:
    """Bring a project to the newest template, or to other answers; your edits stay.

    Exits with 0 if all is well, 1 if conflicts are marked in the files, 2 if nothing was done.
    """
    from ..answers import find_project

    project = find_project(Path(os.path.abspath(path)))
    if abort:
        from .run import take_back

        told = take_back(project)
        if as_json:
            import json

            told = json.dumps({"version": 1, "project": str(project), "told": told}, indent=2)
        typer.echo(told)
        return
    from .run import update
    from .show import as_json as json_of
    from .show import as_text

    done = update(project, given(context), dry_run=dry_run)
    typer.echo(json_of(done, diff) if as_json else "\n".join(as_text(done, diff)))
    raise typer.Exit(CONFLICTS if done.conflicts else 0)
