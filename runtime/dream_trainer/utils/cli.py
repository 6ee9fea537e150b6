"""The command line of a training script."""

import inspect
import sys
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer

from ..configs import BaseTrainerConfig, ConfigError, resolve_axes
from ..configs.errors import place_of
from ..processes import Process
from . import (  # noqa: F401  # Each registers its commands.
    checkpoint_commands,
    diagnosis_commands,
    report_command,
    summary_command,
)
from .chosen import FORMS, Choice, render, resolve, resolved
from .commands import COMMANDS, Command
from .entrypoint import StartError, end_with, processes, train
from .modifiers import MODIFIERS

Main = Callable[[Any], object]


def cli(main: Main, config: Choice | Mapping[str, Choice]) -> None:
    """Run `main(config)` on the devices that the configuration asks for.

    `config` is a configuration, a function that makes one, or a mapping of names to
    either, of which `--config NAME` chooses (default: the first). Options change the
    configuration before anything starts; see `register_modifier`. The first word on the
    command line may name something else to do; see `commands.py`.
    """
    choices = dict(config) if isinstance(config, Mapping) else {"default": config}
    app = typer.Typer(
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True, help=_help(main))(_training(main, choices))
    for command in COMMANDS.values():
        app.command(command.name, help=command.help)(_subcommand(command, main, choices))
    app(args=with_form(sys.argv[1:]))


def _training(main: Main, choices: Mapping[str, Choice]) -> Callable[..., None]:
    """What the script does where no command is named."""

    def run(context: typer.Context, show: str | None, **options: Any) -> None:
        if context.invoked_subcommand is not None:
            if show or any(value not in (None, False) for value in options.values()):
                name = context.invoked_subcommand
                raise typer.BadParameter(f"Write the options of {name} behind it.")
            return
        try:
            config, changes = resolved(choices, options)
        except typer.BadParameter:
            raise
        except Exception as error:
            refuse(error)
        if show:
            typer.echo(render(config, changes, show, describe_mesh(config)))
            return
        train(main, config)

    text = "Print the configuration and exit; alone, as Python."
    show = typer.Option("--cfg", help=text, metavar="[python|json|yaml]")
    own = [
        _parameter("context", typer.Context),
        _parameter("show", Annotated[Literal["python", "json", "yaml"] | None, show], None),
    ]
    return _with_signature(run, [*own, *_config_options(choices)])


def _subcommand(
    command: Command, main: Main, choices: Mapping[str, Choice]
) -> Callable[..., None]:
    """`command` with the options that choose and change the configuration."""
    own = command.options

    def run(**options: Any) -> None:
        arguments = {parameter.name: options.pop(parameter.name) for parameter in own}
        refusals = []

        def make_config() -> BaseTrainerConfig:
            try:
                return resolve(choices, options)
            except Exception as error:
                refusals.append(error)
                raise

        try:
            code = command.run(main, make_config, **arguments)
        except Exception as error:
            if error not in refusals or isinstance(error, typer.BadParameter):
                raise
            refuse(error)
        raise typer.Exit(code)

    return _with_signature(run, [*own, *_config_options(choices)])


def refuse(error: Exception) -> NoReturn:
    """End with what is wrong with the configuration, and where."""
    kind = error.code if isinstance(error, ConfigError) else type(error).__name__
    place = place_of(error)
    end_with(StartError(f"{error} [{kind}]" + (f"\n  --> {place}" if place else "")))


def _config_options(choices: Mapping[str, Choice]) -> list[inspect.Parameter]:
    """The options that choose and change the configuration."""
    parameters: dict[str, tuple[Any, Any]] = {}
    if len(choices) > 1:
        names = ", ".join(choices)
        text = f"Which configuration: {names}. Default: {next(iter(choices))}."
        parameters["config"] = (str | None, typer.Option("--config", help=text))
    text = "PATH=VALUE: change any field, as in device_parameters.param_dtype=float32."
    parameters["set"] = (list[str] | None, typer.Option("--set", help=text, metavar="PATH=VALUE"))
    for modifier in MODIFIERS.values():
        kind = bool if modifier.type is bool else modifier.type | None
        parameters[modifier.name] = (kind, typer.Option(modifier.flag, help=modifier.help))
    return [
        _parameter(name, Annotated[kind, option], False if kind is bool else None)
        for name, (kind, option) in parameters.items()
    ]


def _parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> Any:
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, annotation=annotation, default=default)


def _with_signature(
    run: Callable[..., None], parameters: list[inspect.Parameter]
) -> Callable[..., None]:
    """`run` as typer is to see it."""
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def with_form(arguments: list[str]) -> list[str]:
    """The command line with `--cfg python` for a `--cfg` that names no form."""
    whole: list[str] = []
    for argument, following in pairwise([*arguments, ""]):
        whole.append(argument)
        if argument == "--cfg" and following not in FORMS:
            whole.append("python")
    return whole


def describe_mesh(config: BaseTrainerConfig) -> str:
    """The mesh that `config` gives on the processes of this launch, or why it gives none."""
    process = Process.from_environment()
    count = process.world_size if process.launched else max(1, processes(config))
    node = process.local_world_size if process.launched else count
    try:
        axes = resolve_axes(config.device_parameters, count, node)
    except ConfigError as error:
        return f"none on {_processes(count)}: {error}"
    return f"{axes} on {_processes(count)}"


def _processes(count: int) -> str:
    return "1 process" if count == 1 else f"{count} processes"


def _help(main: Main) -> str:
    doc = inspect.getdoc(sys.modules["__main__"]) or inspect.getdoc(main) or ""
    title = doc.partition("\n\n")[0]
    return f"{Path(sys.argv[0]).name}: {title}" if title else Path(sys.argv[0]).name
