"""What `python train.py` can do with checkpoints besides going on from them."""

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ..configs import CheckpointParameters, RunError
from .commands import Main, MakeConfig, register_command


@register_command("export")
def export(
    main: Main,
    make_config: MakeConfig,
    *,
    checkpoint_path: Annotated[
        str, typer.Option(help="A checkpoint, the folder of a run, or of its checkpoints.")
    ],
    output_path: Annotated[
        Path, typer.Option(help="A .pt file, or the folder that safetensors go to.")
    ],
    format: Annotated[
        Literal["pt", "safetensors"] | None,
        typer.Option(help="Default: pt where the output ends in .pt, else safetensors."),
    ] = None,
    resume_mode: Annotated[
        Literal["min", "max", "last"] | None,
        typer.Option(
            help="Of a run, the newest, or the best by --monitor. Default: the configuration's."
        ),
    ] = None,
    monitor: Annotated[
        str | None, typer.Option(metavar="NAME", help="Default: the configuration's.")
    ] = None,
    max_shard_size: Annotated[
        str, typer.Option(metavar="SIZE", help="Of safetensors, the largest file.")
    ] = "5GB",
) -> int:
    """Write a checkpoint's weights as one .pt file, or as Hugging Face's safetensors.

    In this one process: no launcher, no GPU, and only a shard of the weights in memory (for
    .pt, all of them). The names are those of the trainer's `hugging_face_layout`.
    """
    from ..checkpoint.export import Target
    from ..checkpoint.export import export as export_checkpoint
    from ..simulate import parse_size, reach_fit

    try:
        shard_bytes = parse_size(max_shard_size)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--max-shard-size") from None
    format = format or ("pt" if output_path.suffix in (".pt", ".pth") else "safetensors")
    config: Any = make_config()
    parameters = getattr(config, "checkpoint_parameters", None) or CheckpointParameters()
    layout = reach_fit(main, config).hugging_face_layout() if format == "safetensors" else None
    target = Target(output=output_path, format=format, layout=layout, shard_bytes=shard_bytes)
    try:
        done = export_checkpoint(
            checkpoint_path,
            target,
            monitor=monitor or parameters.monitor,
            mode=resume_mode or parameters.resume_mode,
        )
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(done)
    return 0
