"""The `dream` command: parsing, exit codes, printing."""

import os
import sys
from itertools import pairwise
from typing import Annotated

import typer

from . import __version__
from .check import command
from .doctor.command import doctor_command
from .errors import DreamError, tell, tell_program
from .project.add.command import add_app
from .project.command import new_command
from .project.update.command import update_command

REFUSED, INTERRUPTED = 2, 130

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
    """Run the command; a `DreamError` becomes two lines and exit code 2.

    Under --json every error is an object on standard output, too.
    """
    as_json = _wants_json(sys.argv[1:])
    try:
        if as_json:
            _run_for_a_program()
        else:
            app()
    except DreamError as error:
        tell(error, as_json=as_json)
        sys.exit(REFUSED)
    except OSError as error:  # A path too long, a disk that is gone.
        refusal = _refused(error)
        if refusal is None:
            raise
        tell(refusal, as_json=as_json)
        sys.exit(REFUSED)


def _refused(error: OSError) -> DreamError | None:
    """What the system has refused, where it says what that was about."""
    if error.strerror is not None and error.filename is not None:
        return DreamError(f"{error.strerror}: {error.filename}", "Mend that and run it again.")
    try:
        os.getcwd()
    except FileNotFoundError:
        return DreamError("This folder does not exist any more.", "Go to another one: cd")
    return None


def _wants_json(words: list[str]) -> bool:
    """Whether one object is expected on standard output."""
    own = words[: words.index("--")] if "--" in words else words
    return (
        "--json" in own
        or "--output-format=json" in own
        or ("--output-format", "json") in pairwise(own)
    )


def _run_for_a_program() -> None:
    """The same, with an object for a command line that means nothing."""
    try:
        code = app(standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(INTERRUPTED)
    except Exception as error:
        # Of click's own, which is in one package or another by typer's version.
        said = getattr(error, "format_message", None)
        if said is None:
            raise
        typer.echo(f"Error: {said()}", err=True)
        tell_program(said(), "`dream --help` lists commands and options.")
        sys.exit(REFUSED)
    sys.exit(code if isinstance(code, int) else 0)
