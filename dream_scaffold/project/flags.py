"""The answers as options of the command line: `new` and `update` take the same."""

from typing import Annotated, Any

import typer

Parallel = Annotated[
    str | None,
    typer.Option(metavar="MODE", help="single, ddp, fsdp, hsdp, cp, tp, pp, or several: fsdp+tp."),
]
Recipe = Annotated[
    str | None, typer.Option(help="What the project starts from; see `dream new --list`.")
]
Compile = Annotated[
    bool | None, typer.Option("--compile/--no-compile", help="Compile the model's blocks.")
]
CheckpointActivations = Annotated[
    bool | None,
    typer.Option("--ckpt-acts/--no-ckpt-acts", help="Recompute activations, to save memory."),
]
Tracker = Annotated[
    str | None, typer.Option(help="Where logs go as well: none, wandb or tensorboard.")
]
Launch = Annotated[
    str | None,
    typer.Option(metavar="LIST", help="Files for slurm, kubernetes and skypilot: slurm,skypilot."),
]
Ci = Annotated[str | None, typer.Option(help="A workflow that checks: none or github.")]
Docker = Annotated[bool | None, typer.Option("--docker/--no-docker", help="Add a Dockerfile.")]
License = Annotated[
    str | None, typer.Option(help="Its text: none, mit, apache-2.0 or bsd-3-clause.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def given(context: typer.Context) -> dict[str, Any]:
    """The answers that the command line gives."""
    from dataclasses import fields

    from .options import Options

    said = {field.name: context.params.get(field.name) for field in fields(Options)}
    return {name: value for name, value in said.items() if value is not None}
