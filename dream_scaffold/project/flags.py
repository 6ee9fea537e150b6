"""The answers as options of the command line: `new` and `update` take the same."""

from typing import Annotated

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
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
