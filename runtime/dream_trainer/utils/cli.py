"""The command line of a training script."""

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ..configs import BaseTrainerConfig, ConfigError, resolve_axes
from ..configs.errors import place_of
from ..world import Process
from . import checkpoint_commands  # noqa: F401  # Registers its commands.
from .commands import COMMANDS, Command
from .entrypoint import StartError, end_with, processes, train
from .modifiers import MODIFIERS
from .overrides import override

Factory = Callable[[], BaseTrainerConfig]
Choice = BaseTrainerConfig | Factory
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
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True, help=_help(main))(_training(main, choices))
    for command in COMMANDS.values():
        app.command(command.name, help=command.help)(_subcommand(command, main, choices))
    app()


def _training(main: Main, choices: Mapping[str, Choice]) -> Callable[..., None]:
    """What the script does where no command is named."""

    def run(context: typer.Context, show: bool, **options: Any) -> None:
        if context.invoked_subcommand is not None:
            if show or any(value not in (None, False) for value in options.values()):
                name = context.invoked_subcommand
                raise typer.BadParameter(f"Write the options of {name} behind it.")
            return
        try:
            config = resolve(choices, options)
        except typer.BadParameter:
            raise
        except Exception as error:
            kind = error.code if isinstance(error, ConfigError) else type(error).__name__
            place = place_of(error)
            end_with(StartError(f"{error} [{kind}]" + (f"\n  --> {place}" if place else "")))
        if show:
            typer.echo(f"{render(config)}\nmesh: {describe_mesh(config)}")
            return
        train(main, config)

    show = typer.Option("--cfg", help="Print the configuration and exit.")
    own = [_parameter("context", typer.Context), _parameter("show", Annotated[bool, show], False)]
    return _with_signature(run, [*own, *_config_options(choices)])


def _subcommand(
    command: Command, main: Main, choices: Mapping[str, Choice]
) -> Callable[..., None]:
    """`command` with the options that choose and change the configuration."""
    own = command.options

    def run(**options: Any) -> None:
        arguments = {parameter.name: options.pop(parameter.name) for parameter in own}
        code = command.run(main, lambda: resolve(choices, options), **arguments)
        raise typer.Exit(code)

    return _with_signature(run, [*own, *_config_options(choices)])


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


def resolve(choices: Mapping[str, Choice], options: Mapping[str, Any]) -> BaseTrainerConfig:
    """Make the configuration that `options` name; apply their modifiers and `--set`."""
    name = options.get("config") or next(iter(choices))
    if name not in choices:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(choices)}.")
    choice = choices[name]
    config = choice() if callable(choice) else choice
    for modifier in MODIFIERS.values():
        value = options.get(modifier.name)
        if value is not None and value is not False:  # 0 is a value.
            modifier.apply(config, value)
    for assignment in options.get("set") or ():
        config = override(config, assignment)
    return config


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


def render(value: Any, indent: int = 0) -> str:
    """A configuration as nested `field: value` lines."""
    lines = []
    for item in fields(value):
        field = getattr(value, item.name)
        if is_dataclass(field) and not isinstance(field, type):
            lines.append(f"{' ' * indent}{item.name}:\n{render(field, indent + 2)}")
        else:
            lines.append(f"{' ' * indent}{item.name}: {field!r}")
    return "\n".join(lines)


def _help(main: Main) -> str:
    doc = inspect.getdoc(sys.modules["__main__"]) or inspect.getdoc(main) or ""
    title = doc.partition("\n\n")[0]
    return f"{Path(sys.argv[0]).name}: {title}" if title else Path(sys.argv[0]).name
