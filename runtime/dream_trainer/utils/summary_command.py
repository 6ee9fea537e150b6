"""`python train.py summarize`: what would run, without running it."""

import sys
from math import prod
from typing import Annotated

import typer

from ..configs import ConfigError, RunError
from .commands import Main, MakeConfig, register_command
from .entrypoint import processes


@register_command("summarize")
def summarize(
    main: Main,
    make_config: MakeConfig,
    *,
    depth: Annotated[int, typer.Option(min=0, help="Levels of modules below a model.")] = 2,
    world_size: Annotated[
        int | None,
        typer.Option(min=1, help="Processes. Default: those of this machine, or what it takes."),
    ] = None,
) -> int:
    """Show mesh, precision, batches, optimizers and the models as rank 0 would hold them.

    In this one process, without memory for the model. Exit code 1 where it cannot be set up.
    """
    from .. import simulate
    from ..callbacks.model_summary import model_table, show
    from ..callbacks.trainer_summary import trainer_table

    config = make_config()
    try:
        degrees = config.device_parameters.degrees.values()
        least = prod(degree for degree in degrees if isinstance(degree, int))
        count = world_size or max(1, processes(config) // least) * least
        node = next(n for n in range(8, 0, -1) if count % n == 0)
        plan = simulate.Plan(world_size=count, local_world_size=node)
        with simulate.rehearsed(main, make_config, plan) as trainer:
            show(trainer_table(trainer, config))
            show(model_table(trainer, depth))
    except (ConfigError, RunError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0
