"""The `check`, `explain` and `lsp` commands: they parse, the engine does the rest."""

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
    typer.Argument(
        metavar="PATH",
        help="Files or folders. Default: this folder. After -- the options of a run: "
        "dream check train.py -- --no-compile --set training_parameters.max_steps=5.",
    ),
]
Format = Annotated[
    OutputFormat | None, typer.Option(help="How findings are printed. Default: full.")
]

Select = Annotated[
    list[str] | None, typer.Option(metavar="CODE", help="Only these rules, e.g. DT2 or DT201.")
]
Ignore = Annotated[list[str] | None, typer.Option(metavar="CODE", help="Not these rules.")]
Strict = Annotated[bool | None, typer.Option("--strict", help="Warnings fail, too.")]
WorldSize = Annotated[
    int | None, typer.Option(metavar="N", help="Check for a run of N processes.")
]
Nodes = Annotated[int | None, typer.Option(metavar="N", help="The same, as N nodes ...")]
PerNode = Annotated[int | None, typer.Option(metavar="M", help="... of M processes each.")]
Config = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only the configuration of this name.")
]
FixOption = Annotated[bool, typer.Option("--fix", help="Carry out the fixes that are safe.")]
Unsafe = Annotated[
    bool, typer.Option("--unsafe-fixes", help="With --fix or --diff: the other ones, too.")
]
Diff = Annotated[
    bool, typer.Option("--diff", help="Show what --fix would change, and change nothing.")
]
Watch = Annotated[bool, typer.Option("--watch", help="Check again whenever a file changes.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also say what could not be decided.")
]
Statistics = Annotated[bool, typer.Option("--statistics", help="Count the findings of each rule.")]
ExitZero = Annotated[bool, typer.Option("--exit-zero", help="Exit with 0 whatever is found.")]
StdinFilename = Annotated[
    str | None, typer.Option(metavar="PATH", help="Read this file from standard input.")
]


def check(
    paths: Paths = None,
    output_format: Format = None,
    json: Annotated[bool, typer.Option("--json", help="As --output-format json.")] = False,
    select: Select = None,
    ignore: Ignore = None,
    strict: Strict = None,
    world_size: WorldSize = None,
    nnodes: Nodes = None,
    nproc_per_node: PerNode = None,
    config: Config = None,
    fix: FixOption = False,
    unsafe_fixes: Unsafe = False,
    diff: Diff = False,
    watch: Watch = False,
    verbose: Verbose = False,
    statistics: Statistics = False,
    exit_zero: ExitZero = False,
    stdin_filename: StdinFilename = None,
) -> None:
    """Check that a trainer and its configurations fit together, without running them.

    Exits with 0 if there is no error, 1 if there is one, 2 if nothing could be checked.
    """
    from .options import Options
    from .session import run

    files, arguments = _of_script(paths or [])
    output_format = OutputFormat.json if json else output_format
    options = Options(
        paths=files,
        arguments=arguments,
        output_format=None if output_format is None else output_format.value,
        select=_codes(select),
        ignore=_codes(ignore),
        strict=strict,
        world_size=world_size,
        nnodes=nnodes,
        nproc_per_node=nproc_per_node,
        config=config,
        fix=fix,
        unsafe_fixes=unsafe_fixes,
        diff=diff,
        watch=watch,
        verbose=verbose,
        statistics=statistics,
        exit_zero=exit_zero,
        stdin_filename=stdin_filename,
    )
    raise typer.Exit(run(options))


def _of_script(words: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Paths, and from the first option on what a training script would be given."""
    first = next((i for i, word in enumerate(words) if word.startswith("--")), len(words))
    return tuple(words[:first]), tuple(words[first:])


def explain(
    code: Annotated[str | None, typer.Argument(help="A rule, e.g. DT201. Default: all.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print it for programs.")] = False,
) -> None:
    """Print the manual of a rule of `dream check`, or the list of all rules."""
    from .session import explain as manual

    print(manual(code, json))


def lsp(
    tcp: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Listen there, for debugging.")
    ] = None,
) -> None:
    """Serve an editor: findings and fixes as you type. Speaks LSP over standard input and output.

    Raises `DreamError` where pygls is not installed or HOST:PORT is none.
    """
    from importlib.util import find_spec

    from ..errors import DreamError

    if find_spec("pygls") is None:
        raise DreamError(
            "The language server needs pygls, which is not installed.",
            "pip install 'dream-scaffold[lsp]'",
        )
    host, _, port = (tcp or "").rpartition(":")
    if tcp is not None and not (host and port.isdecimal() and int(port) < 65_536):
        raise DreamError(f"--tcp {tcp} is no address.", "Give HOST:PORT, e.g. localhost:2087.")
    from .server.serve import serve

    raise typer.Exit(serve((host, int(port)) if tcp is not None else None))


def _codes(given: list[str] | None) -> tuple[str, ...] | None:
    """`--select DT1,DT2` and `--select DT1 --select DT2` mean the same."""
    if not given:
        return None
    return tuple(code for item in given for code in item.replace(",", " ").split())
