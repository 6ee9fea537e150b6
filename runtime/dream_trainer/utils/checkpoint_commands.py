"""What `python train.py` can do with checkpoints besides going on from them."""

import sys
from json import dumps
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
    parameters = _parameters(config)
    layout = reach_fit(main, config).hugging_face_layout() if format == "safetensors" else None
    target = Target(output=output_path, format=format, layout=layout, shard_bytes=shard_bytes)
    try:
        done = export_checkpoint(
            checkpoint_path,
            target,
            monitor=monitor or parameters.monitor,
            mode=resume_mode or parameters.resume_mode,
            demanded=monitor is not None or resume_mode in ("min", "max"),
        )
    except RunError as error:
        return _fail(error)
    print(done)
    return 0


@register_command("checkpoints")
def checkpoints(
    main: Main,
    make_config: MakeConfig,
    *,
    run: Annotated[str | None, typer.Argument(help="One run. Default: all of them.")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Compare every byte as well.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
) -> int:
    """List the checkpoints of a run: step, metric, size, age, mesh and whether each is whole.

    Exit code 1 where one is damaged.
    """
    from ..checkpoint import listing

    parameters = _parameters(make_config())
    root, monitor = parameters.root_dir, parameters.monitor
    names = listing.runs(root) if run is None else [run]
    found = [row for name in names for row in listing.rows(root, name, monitor, verify)]
    if json:
        print(dumps(found))
    elif found:
        print(listing.table(found, monitor, verify))
    else:
        print(f"no checkpoints of {run or 'any run'} in {root}", file=sys.stderr)
        return 1
    return int(any(row.get("problems") for row in found))


@register_command("verify")
def verify(
    main: Main,
    make_config: MakeConfig,
    *,
    path: Annotated[str, typer.Argument(help="A checkpoint, or a run: then its newest.")],
) -> int:
    """Read a checkpoint whole and compare it with what was written. Exit code 1: damaged."""
    from rich.progress import track

    from ..checkpoint import listing, manifest

    try:
        checkpoint = manifest.find(path)
    except RunError as error:
        return _fail(error)
    files, size = len(checkpoint.manifest.files), listing.size(checkpoint.manifest.size)
    problems = checkpoint.wrong_sizes()
    names = [] if problems else sorted(checkpoint.manifest.files)
    for name in track(names, "reading", transient=True, disable=not sys.stdout.isatty()):
        problems += checkpoint.wrong_contents([name])
    for problem in problems:
        print(f"{checkpoint.url}: {problem}")
    if not problems:
        print(f"{checkpoint.url}: verified, {files} files, {size}")
    return int(bool(problems))


@register_command("diff")
def diff(
    main: Main,
    make_config: MakeConfig,
    *,
    one: Annotated[str, typer.Argument(help="A checkpoint, or a run: then its newest.")],
    other: Annotated[str, typer.Argument(help="The one to compare it with.")],
) -> int:
    """Compare names, shapes and types of what two checkpoints hold. Exit code 1: they differ."""
    from ..checkpoint import listing, manifest

    try:
        first, second = manifest.find(one), manifest.find(other)
    except RunError as error:
        return _fail(error)
    lines = listing.difference(first, second)
    count = len(first.manifest.tensors)
    print("\n".join(lines) if lines else f"the same {count} tensors in name, shape and type")
    return int(bool(lines))


def _parameters(config: Any) -> CheckpointParameters:
    return getattr(config, "checkpoint_parameters", None) or CheckpointParameters()


def _fail(error: RunError) -> int:
    print(f"error: {error}", file=sys.stderr)
    return 1
