"""The `update` command: it parses, `run` does the rest."""

import os
from pathlib import Path
from typing import Annotated

import typer

CONFLICTS = 1


def update_command(
    path: Annotated[str, typer.Argument(help="The project. Default: this folder.")] = ".",
    parallel: Annotated[
        str | None, typer.Option(metavar="MODE", help="Another way to lay out a run: fsdp+tp.")
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="Another recipe.")] = None,
    compile: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="Compile the model's blocks.")
    ] = None,
    ckpt_acts: Annotated[
        bool | None,
        typer.Option("--ckpt-acts/--no-ckpt-acts", help="Recompute activations, to save memory."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; say what would happen.")
    ] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Show the changes line by line.")] = False,
    abort: Annotated[bool, typer.Option("--abort", help="Take the last update back.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Bring a project to the newest template, or to other answers; your edits stay.

    Exits with 0 if all is well, 1 if conflicts are marked in the files, 2 if nothing was done.
    """
    from ..answers import find_project

    project = find_project(Path(os.path.abspath(path)))
    if abort:
        from .run import take_back

        typer.echo(take_back(project))
        return
    from .run import update
    from .show import as_json as json_of
    from .show import as_text

    overrides = {
        "parallel": parallel,
        "recipe": recipe,
        "compile": compile,
        "ckpt_acts": ckpt_acts,
    }
    done = update(project, overrides, dry_run=dry_run)
    typer.echo(json_of(done, diff) if as_json else "\n".join(as_text(done, diff)))
    raise typer.Exit(CONFLICTS if done.conflicts else 0)
