"""The command line of a training script."""

import inspect
import sys
import sysconfig
import traceback
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from math import prod
from pathlib import Path
from typing import Annotated, Any

import typer

from ..configs import BaseTrainerConfig, ConfigError, resolve_axes
from ..world import Process, accelerator_count
from .entrypoint import StartError, end_with, guarded, launch
from .modifiers import MODIFIERS
from .overrides import override

Factory = Callable[[], BaseTrainerConfig]
Choice = BaseTrainerConfig | Factory
Main = Callable[[Any], object]
LIBRARIES = ("stdlib", "purelib", "platlib")


def cli(main: Main, config: Choice | Mapping[str, Choice]) -> None:
    """Run `main(config)` on the devices that the configuration asks for.

    `config` is a configuration, a function that makes one, or a mapping of names to
    either, of which `--config NAME` chooses (default: the first). Options change the
    configuration before anything starts; see `register_modifier`.
    """
    choices = dict(config) if isinstance(config, Mapping) else {"default": config}
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(help=_help(main), context_settings={"help_option_names": ["-h", "--help"]})(
        _command(main, choices)
    )
    app()


def _command(main: Main, choices: Mapping[str, Choice]) -> Callable[..., None]:
    """The default command: its signature is made from the configurations and modifiers."""

    def run(**options: Any) -> None:
        show = options.pop("cfg")
        chosen = options.pop("config", None) or next(iter(choices))
        try:
            config = resolve(choices, chosen, options)
        except typer.BadParameter:
            raise
        except Exception as error:
            kind = error.code if isinstance(error, ConfigError) else type(error).__name__
            end_with(StartError(f"{error} [{kind}]{_place(error)}"))
        if not show:
            for callback in config.callbacks or ():
                callback.pre_launch(config)
        if show:
            typer.echo(f"{render(config)}\nmesh: {describe_mesh(config)}")
        elif (count := processes(config)) > 1:
            launch(count)
        else:
            guarded(main)(config)

    parameters: dict[str, tuple[Any, Any]] = {
        "cfg": (bool, typer.Option("--cfg", help="Print the configuration and exit."))
    }
    if len(choices) > 1:
        names = ", ".join(choices)
        text = f"Which configuration: {names}. Default: {next(iter(choices))}."
        parameters["config"] = (str | None, typer.Option("--config", help=text))
    text = "PATH=VALUE: change any field, as in device_parameters.param_dtype=float32."
    parameters["set"] = (list[str] | None, typer.Option("--set", help=text, metavar="PATH=VALUE"))
    for modifier in MODIFIERS.values():
        kind = bool if modifier.type is bool else modifier.type | None
        parameters[modifier.name] = (kind, typer.Option(modifier.flag, help=modifier.help))
    signature = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=Annotated[kind, option],
            default=False if kind is bool else None,
        )
        for name, (kind, option) in parameters.items()
    ]
    run.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in signature}
    return run


def resolve(
    choices: Mapping[str, Choice], name: str, options: Mapping[str, Any]
) -> BaseTrainerConfig:
    """Make the configuration called `name` and apply the modifiers and `--set` of `options`."""
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


def processes(config: BaseTrainerConfig) -> int:
    """How many processes to launch here: one under a launcher or for a single device."""
    if Process.from_environment().launched:
        return 1
    degrees = config.device_parameters.degrees.values()
    fixed = prod(degree for degree in degrees if isinstance(degree, int))
    return 1 if fixed == 1 and "auto" not in degrees else accelerator_count()


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


def _place(error: Exception) -> str:
    """Where in the user's code `error` arose, as a line to put below it."""
    others = (Path(__file__).parents[1], *(Path(sysconfig.get_path(p)) for p in LIBRARIES))
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).exists()
        and not any(folder in Path(frame.filename).parents for folder in others)
    ]
    return "".join(f"\n  --> {f.filename}:{f.lineno}, in {f.name}" for f in frames[-1:])


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
