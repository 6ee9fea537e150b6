"""The `dream` command: parsing, exit codes, printing."""

import gc
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from . import __version__
from .check import command
from .errors import DreamError
from .project.update.command import update_command

REFUSED = 2
INTERRUPTED = 130

app = typer.Typer(
    name="dream",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dream {__version__}")
        raise typer.Exit


@app.callback()
def dream(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """Start, check and scale a PyTorch training project whose every line you can read."""


@app.command()
def new(
    path: Annotated[
        str | None, typer.Argument(help="Folder of the new project; its last part is the name.")
    ] = None,
    parallel: Annotated[
        str | None,
        typer.Option(
            metavar="MODE", help="single, ddp, fsdp, hsdp, cp, tp, pp, or several: fsdp+tp."
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(help="lm: a small language model (default). blank: a model to replace."),
    ] = None,
    compile: Annotated[
        bool, typer.Option("--compile/--no-compile", help="Compile the model's blocks.")
    ] = False,
    ckpt_acts: Annotated[
        bool,
        typer.Option("--ckpt-acts/--no-ckpt-acts", help="Recompute activations, to save memory."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Add to a folder that is not empty.")
    ] = False,
    no_git: Annotated[
        bool, typer.Option("--no-git", help="Make no repository and no first commit.")
    ] = False,
    defaults: Annotated[
        bool, typer.Option("--defaults", help="Ask nothing: fsdp and lm where nothing is said.")
    ] = False,
) -> None:
    """Make a project that trains, and check it."""
    from .project.ask import complete
    from .project.new import create
    from .project.options import Options
    from .project.report import describe

    try:
        path, parallel, recipe = complete(path, parallel, recipe, defaults=defaults)
        target = Path(os.path.abspath(path))  # Without "..": what lies around it is asked.
        options = Options(
            name=target.name,
            parallel=parallel,
            recipe=recipe,
            compile=compile,
            ckpt_acts=ckpt_acts,
        )
        created = create(target, options, force=force, git=not no_git)
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("\ninterrupted: nothing was left half made", err=True)
        raise typer.Exit(INTERRUPTED) from None
    typer.echo(describe(created, path))


@app.command(
    "dry-run",
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": [],
    },
)
def dry_run(context: typer.Context) -> None:
    """Try a run of any size in one process: [train.py] --world-size N [--help]."""
    from .project.rehearse import dry_run

    raise typer.Exit(dry_run(context.args))


app.command("update")(update_command)
app.command()(command.check)
app.command()(command.explain)


def main() -> None:
    """Run the command; a `DreamError` becomes two lines and exit code 2."""
    # Collecting garbage would take a tenth of a command that is over in half a second.
    gc.disable()
    try:
        app()
    except DreamError as error:
        typer.echo(f"error: {error.fact}\nhelp: {error.remedy}", err=True)
        sys.exit(REFUSED)
    finally:
        gc.enable()
