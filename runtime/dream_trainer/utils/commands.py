"""What a training script can do besides training: `python train.py COMMAND ...`.

A command is a function of (main, make_config, *, own options) that returns the exit code.
`cli` gives every command `--config`, `--set` and the modifiers; `make_config()` makes the
configuration that they ask for, and raises what is wrong with it.
"""

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from ..configs import BaseTrainerConfig

Main = Callable[[Any], object]
MakeConfig = Callable[[], BaseTrainerConfig]


@dataclass(frozen=True)
class Command:
    """`python train.py name`; `options` are the keyword parameters of `run`, as typer has them."""

    name: str
    run: Callable[..., int]

    @property
    def help(self) -> str:
        return inspect.getdoc(self.run) or ""

    @property
    def options(self) -> list[inspect.Parameter]:
        parameters = inspect.signature(self.run).parameters.values()
        return [p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]


COMMANDS: dict[str, Command] = {}
"""Name -> command, in the order of `--help`."""


def register_command(name: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Add `python train.py name` to `cli()`."""

    def register(run: Callable[..., int]) -> Callable[..., int]:
        COMMANDS[name] = Command(name, run)
        return run

    return register


@register_command("dry-run")
def dry_run(
    main: Main,
    make_config: MakeConfig,
    *,
    world_size: Annotated[int, typer.Option(min=1, help="Processes of the run to try.")],
    nproc_per_node: Annotated[
        int | None, typer.Option(min=1, help="Processes on one node. Default: 8, or what divides.")
    ] = None,
    rank: Annotated[int, typer.Option(min=0, help="Which of them to be.")] = 0,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="What a device has, as in 80GiB.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Try a run of any size in this one process: mesh, memory, collectives, and what is wrong.

    No GPU and no memory for the model is needed. Exit code 1 where something is wrong.
    """
    from .. import simulate

    try:
        limit = None if memory is None else simulate.parse_size(memory)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--memory") from None
    plan = simulate.Plan(
        world_size=world_size,
        local_world_size=nproc_per_node or next(n for n in range(8, 0, -1) if world_size % n == 0),
        rank=rank,
        memory=limit,
    )
    report = simulate.dry_run(main, make_config, plan)
    print(report.as_json() if json else report.as_text(), file=sys.stdout)
    return 0 if report.ok else 1
