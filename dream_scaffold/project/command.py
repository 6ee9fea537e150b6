"""The `new` command: it parses, `new` does the rest."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import typer

from .flags import (
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

INTERRUPTED = 130


Folder = Annotated[
    str | None, typer.Argument(help="Folder of the new project; its last part is the name.")
]
Force = Annotated[bool, typer.Option("--force", help="Add to a folder that is not empty.")]
NoGit = Annotated[bool, typer.Option("--no-git", help="Make no repository and no first commit.")]
Defaults = Annotated[
    bool, typer.Option("--defaults", help="Ask nothing: fsdp and lm where nothing is said.")
]
DataFile = Annotated[
    str | None, typer.Option(metavar="YAML", help="Take answers from a file; options win over it.")
]
List = Annotated[
    bool, typer.Option("--list", help="Say what recipes, modes and presets there are.")
]
Template = Annotated[
    str | None,
    typer.Option(metavar="PATH|URL", help="A copier template of your own, in place of ours."),
]
Data = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="With --template: an answer to one of its questions."),
]
Trust = Annotated[
    bool, typer.Option("--trust", help="With --template: it may run code, with your rights.")
]
Pretend = Annotated[
    bool, typer.Option("--pretend", help="Write nothing; show the tree and what would change.")
]


def new_command(
    context: typer.Context,
    path: Folder = None,
    parallel: Parallel = None,
    recipe: Recipe = None,
    compile: Compile = None,
    ckpt_acts: CheckpointActivations = None,
    tracker: Tracker = None,
    launch: Launch = None,
    ci: Ci = None,
    docker: Docker = None,
    license: License = None,
    force: Force = False,
    no_git: NoGit = False,
    defaults: Defaults = False,
    data_file: DataFile = None,
    template: Template = None,
    data: Data = None,
    trust: Trust = False,
    list_: List = False,
    pretend: Pretend = False,
    as_json: Json = False,
) -> None:
    """Make a project that trains, and check it."""
    try:
        typer.echo(_told(context, SimpleNamespace(**context.params)))
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("\ninterrupted: nothing was left half made", err=True)
        sys.exit(INTERRUPTED)


def _told(context: typer.Context, said: SimpleNamespace) -> str:
    """Do what the options of the command line say; returns what is printed."""
    if said.list_:
        from . import listing

        return listing.as_json() if said.as_json else listing.as_text()
    if said.template is not None or said.data or said.trust:
        from . import template_command

        return template_command.run(said, ours=list(given(context)))
    from . import report
    from .answers import read_file
    from .ask import complete
    from .new import create, preview
    from .options import Options

    answers = (read_file(Path(said.data_file)) if said.data_file is not None else {}) | given(
        context
    )
    path, answers["parallel"], answers["recipe"], answers["tracker"] = complete(
        said.path or answers.get("name"),
        answers.get("parallel"),
        answers.get("recipe"),
        answers.get("tracker"),
        defaults=said.defaults or said.as_json,
    )
    target = Path(os.path.abspath(path))  # Without "..": what lies around it is asked.
    options = Options(**{**answers, "name": target.name})
    if said.pretend:
        shown = preview(target, options)
        return report.pretended_json(shown) if said.as_json else report.pretended(shown)
    created = create(target, options, force=said.force, git=not said.no_git)
    return report.as_json(created, path) if said.as_json else report.describe(created, path)
