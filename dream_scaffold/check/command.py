"""The `check` and `explain` commands: they parse, the engine does the rest."""

from enum import StrEnum
from typing import Annotated

import typer


class OutputFormat(StrEnum):
    """How findings are printed."""

    full = "full"
    concise = "concise"
    json = "json"
    sarif = "sarif"
    github = "github"
    gitlab = "gitlab"
    junit = "junit"


Paths = Annotated[
    list[str] | None,
    typer.Argument(metavar="PATH", help="Files or folders. Default: this folder."),
]
Format = Annotated[
    OutputFormat | None, typer.Option(help="How findings are printed. Default: full.")
]


def check(
    paths: Paths = None,
    output_format: Format = None,
    select: Annotated[
        list[str] | None, typer.Option(metavar="CODE", help="Only these rules, e.g. DT2 or DT201.")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="CODE", help="Not these rules.")
    ] = None,
    strict: Annotated[bool | None, typer.Option("--strict", help="Warnings fail, too.")] = None,
    world_size: Annotated[
        int | None, typer.Option(metavar="N", help="Check for a run of N processes.")
    ] = None,
    nnodes: Annotated[
        int | None, typer.Option(metavar="N", help="The same, as N nodes ...")
    ] = None,
    nproc_per_node: Annotated[
        int | None, typer.Option(metavar="M", help="... of M processes each.")
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only the configuration of this name.")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also say what could not be decided.")
    ] = False,
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Count the findings of each rule.")
    ] = False,
    exit_zero: Annotated[
        bool, typer.Option("--exit-zero", help="Exit with 0 whatever is found.")
    ] = False,
    stdin_filename: Annotated[
        str | None, typer.Option(metavar="PATH", help="Read this file from standard input.")
    ] = None,
) -> None:
    """Check that a trainer and its configurations fit together, without running them.

    Exits with 0 if there is no error, 1 if there is one, 2 if nothing could be checked.
    """
    from .engine import run
    from .options import Options

    options = Options(
        paths=tuple(paths or ()),
        output_format=None if output_format is None else output_format.value,
        select=_codes(select),
        ignore=_codes(ignore),
        strict=strict,
        world_size=world_size,
        nnodes=nnodes,
        nproc_per_node=nproc_per_node,
        config=config,
        verbose=verbose,
        statistics=statistics,
        exit_zero=exit_zero,
        stdin_filename=stdin_filename,
    )
    raise typer.Exit(run(options))


def explain(
    code: Annotated[str | None, typer.Argument(help="A rule, e.g. DT201. Default: all.")] = None,
) -> None:
    """Print the manual of a rule of `dream check`, or the list of all rules."""
    from .engine import explain as manual

    print(manual(code))


def _codes(given: list[str] | None) -> tuple[str, ...] | None:
    """`--select DT1,DT2` and `--select DT1 --select DT2` mean the same."""
    if not given:
        return None
    return tuple(code for item in given for code in item.replace(",", " ").split())
