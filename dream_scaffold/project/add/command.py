"""The `add` commands: they parse, the modules beside them do the rest."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..flags import CheckpointActivations, Compile, Json
from ..update.command import CONFLICTS

if TYPE_CHECKING:
    from ..options import Options
    from .added import Added
    from .draft import Draft

Project = Annotated[str, typer.Option(metavar="PATH", help="The project. Default: this folder.")]
Trainer = Annotated[
    str | None, typer.Option(metavar="CLASS", help="Which trainer, where there are several.")
]
Pretend = Annotated[bool, typer.Option("--pretend", help="Write nothing; show what would change.")]

add_app = typer.Typer(
    help="Write a callback, a hook, a configuration or a launcher into a project.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@add_app.command()
def callback(
    name: Annotated[str, typer.Argument(help="Its class: EarlyStop, or early-stop.")],
    event: Annotated[
        list[str] | None,
        typer.Option(help="What it waits for; several times for several. See docs/callbacks.md."),
    ] = None,
    why: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Its docstring: what a run lacks without it."),
    ] = None,
    trainer: Trainer = None,
    project: Project = ".",
    pretend: Pretend = False,
    as_json: Json = False,
) -> None:
    """A class with the events that it waits for, listed by every configuration, and its test."""

    def work(draft: "Draft", options: "Options") -> "Added":
        from .callback import add_callback

        events = [part.strip() for given in event or [] for part in given.split(",")]
        return add_callback(draft, name, events, why, trainer)

    _carry_out(project, work, pretend, as_json)


@add_app.command()
def hook(
    name: Annotated[str, typer.Argument(help="Such as apply_compile.")],
    trainer: Trainer = None,
    project: Project = ".",
    pretend: Pretend = False,
    as_json: Json = False,
) -> None:
    """A hook of the trainer, in the order of the calls."""

    def work(draft: "Draft", options: "Options") -> "Added":
        from .hook import add_hook

        return add_hook(draft, options, name, trainer)

    _carry_out(project, work, pretend, as_json)


@add_app.command()
def config(
    name: Annotated[str, typer.Argument(help="As --config shall name it: large, or fsdp+tp.")],
    parallel: Annotated[
        str, typer.Option(metavar="MODE", help="As for dream new: fsdp, or several: fsdp+tp.")
    ],
    compile: Compile = None,
    ckpt_acts: CheckpointActivations = None,
    trainer: Trainer = None,
    project: Project = ".",
    pretend: Pretend = False,
    as_json: Json = False,
) -> None:
    """A configuration, its entry among the choices of --config, and the hooks that it calls."""

    def work(draft: "Draft", options: "Options") -> "Added":
        from ..answers import changed
        from .factory import add_config

        said = {"parallel": parallel, "compile": compile, "ckpt_acts": ckpt_acts}
        return add_config(draft, changed(options, said), name, trainer)

    _carry_out(project, work, pretend, as_json)


@add_app.command()
def launch(
    name: Annotated[str, typer.Argument(help="slurm, kubernetes or skypilot.")],
    project: Project = ".",
    pretend: Pretend = False,
    as_json: Json = False,
) -> None:
    """A file that starts runs elsewhere, as `dream update --launch` would write it."""
    from . import show
    from .launch import add_launcher, as_text

    added, done = add_launcher(Path(os.path.abspath(project)), name, pretend=pretend)
    typer.echo(show.as_json(added) if as_json else "\n".join(as_text(added, done)))
    raise typer.Exit(CONFLICTS if done is not None and done.conflicts else 0)


def _carry_out(
    path: str, work: "Callable[[Draft, Options], Added]", pretend: bool, in_json: bool
) -> None:
    """Find the project, do the work on a draft of it, write that, and tell."""
    from . import show
    from .run import add

    added = add(Path(os.path.abspath(path)), work, pretend=pretend)
    typer.echo(show.as_json(added) if in_json else "\n".join(show.as_text(added)))
