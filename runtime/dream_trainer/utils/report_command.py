"""`python train.py report`: the curves of runs as one page."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..configs import LoggingParameters, RunError
from .commands import Main, MakeConfig, register_command


@register_command("report")
def report(
    main: Main,
    make_config: MakeConfig,
    *,
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="Names of runs, their folders or logs.")
    ],
    output: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
) -> int:
    """Write one HTML page of runs: loss, learning rate, throughput, norms, what differs.

    It needs nothing beside it, and no network.
    """
    from ..report import page, reading

    config: Any = make_config()
    parameters = getattr(config, "logging_parameters", None) or LoggingParameters()
    try:
        found = [reading.read_run(run, parameters.root_dir) for run in runs]
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(page.render(found), encoding="utf-8")
    print(output)
    return 0
