"""The `new` command: it parses, `new` does the rest."""

import os
import sys
from pathlib import Path
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
    if list_:
        from . import listing

        typer.echo(listing.as_json() if as_json else listing.as_text())
        return
    from . import report
    from .answers import read_file
    from .ask import complete
    from .new import create, preview
    from .options import Options

    try:
        if template is not None or data or trust:
            from . import template_command

            told = template_command.run(
                template,
                path,
                ours=list(given(context)),
                data_file=data_file,
                assigned=data or (),
                defaults=defaults or as_json,
                trust=trust,
                force=force,
                git=not no_git,
                pretend=pretend,
                as_json=as_json,
            )
            typer.echo(told)
            return
        answers = (read_file(Path(data_file)) if data_file is not None else {}) | given(context)
        path, answers["parallel"], answers["recipe"], answers["tracker"] = complete(
            path or answers.get("name"),
            answers.get("parallel"),
            answers.get("recipe"),
            answers.get("tracker"),
            defaults=defaults or as_json,
        )
        target = Path(os.path.abspath(path))  # Without "..": what lies around it is asked.
        options = Options(**{**answers, "name": target.name})
        if pretend:
            shown = preview(target, options)
            typer.echo(report.pretended_json(shown) if as_json else report.pretended(shown))
            return
        created = create(target, options, force=force, git=not no_git)
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("\ninterrupted: nothing was left half made", err=True)
        sys.exit(INTERRUPTED)
    typer.echo(report.as_json(created, path) if as_json else report.describe(created, path))
