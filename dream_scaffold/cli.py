"""The `dream` command: parsing, exit codes, printing."""

import sys
from typing import Annotated

import typer

from . import __version__
from .check import command
from .doctor.command import doctor_command
from .errors import DreamError
from .project.add.command import add_app
from .project.command import new_command
from .project.update.command import update_command

REFUSED = 2

app = typer.Typer(
    name="dream",
    no_args_is_help=True,
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


app.command("new")(new_command)


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
app.add_typer(add_app, name="add")
app.command()(command.check)
app.command()(command.explain)
app.command()(command.lsp)
app.command("doctor")(doctor_command)


def main() -> None:
    """Run the command; a `DreamError` becomes two lines and exit code 2."""
    try:
        app()
    except DreamError as error:
        typer.echo(f"error: {error.fact}\nhelp: {error.remedy}", err=True)
        sys.exit(REFUSED)
