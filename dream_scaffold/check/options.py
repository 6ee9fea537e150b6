"""What a check is asked to do: the command line, and `[tool.dream.check]` below it."""

import os
from dataclasses import dataclass, fields, replace

from ..errors import DreamError
from .source import project_root

FORMATS = ("full", "concise", "json", "sarif", "github", "gitlab", "junit")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of one check. None: not given."""

    paths: tuple[str, ...] = ()
    """Files or folders; none: the current folder."""

    output_format: str | None = None
    select: tuple[str, ...] | None = None
    """Codes, or their beginnings (`DT2`); None: every rule."""

    ignore: tuple[str, ...] | None = None
    strict: bool | None = None
    """Warnings fail, too."""

    world_size: int | None = None
    """The number of processes; or `nnodes` times `nproc_per_node`."""

    nnodes: int | None = None
    nproc_per_node: int | None = None
    config: str | None = None
    """Check only the configuration of this name."""

    verbose: bool = False
    statistics: bool = False
    exit_zero: bool = False
    stdin_filename: str | None = None
    """Where the source on standard input belongs."""

    @property
    def processes(self) -> int | None:
        """How many processes the run has, if that was said."""
        if self.nproc_per_node is None:
            return self.world_size
        return self.nproc_per_node * (self.nnodes or 1)


SETTINGS = {
    "output-format": str,
    "select": list,
    "ignore": list,
    "strict": bool,
    "world-size": int,
    "nnodes": int,
    "nproc-per-node": int,
    "config": str,
}
"""Keys of `[tool.dream.check]` and their types."""


def resolve_options(options: Options) -> Options:
    """Fill in from pyproject.toml what the command line left open, and refuse nonsense.

    Raises `DreamError`.
    """
    first = options.stdin_filename or (options.paths[0] if options.paths else ".")
    path = os.path.abspath(first)
    root = project_root(path if os.path.isdir(path) else os.path.dirname(path))
    settings = read_settings(os.path.join(root, "pyproject.toml")) if root else {}
    if options.world_size is not None or options.nproc_per_node is not None:
        # Sizes belong together: one on the command line replaces all of the file's.
        for name in ("world_size", "nnodes", "nproc_per_node"):
            settings.pop(name, None)
    given = {field.name for field in fields(options) if getattr(options, field.name) is not None}
    left_open = {name: value for name, value in settings.items() if name not in given}
    options = replace(options, **left_open)  # type: ignore[arg-type]
    _validate(options)
    return options


def read_settings(path: str) -> dict[str, object]:
    """The table `[tool.dream.check]` of a pyproject.toml, by the names of `Options`."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError):
        return {}
    if "dream" not in text:
        return {}
    import tomllib

    shown = os.path.relpath(path)
    try:
        table: object = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DreamError(f"{shown} is not valid TOML: {error}.", "Correct it.") from None
    for key in ("tool", "dream", "check"):
        table = table.get(key, {}) if isinstance(table, dict) else {}
    settings: dict[str, object] = {}
    for key, value in table.items() if isinstance(table, dict) else ():
        wanted = SETTINGS.get(key)
        if wanted is None:
            raise DreamError(
                f"{shown} sets {key} in [tool.dream.check], which is no setting.",
                f"The settings are {', '.join(SETTINGS)}.",
            )
        if type(value) is not wanted:
            raise DreamError(
                f"{shown} sets {key} = {value!r} in [tool.dream.check].",
                f"Give it a value of type {wanted.__name__}.",
            )
        settings[key.replace("-", "_")] = (
            tuple(map(str, value)) if isinstance(value, list) else value
        )
    return settings


def _validate(options: Options) -> None:
    chosen = options.output_format
    if chosen is not None and chosen not in FORMATS:
        raise DreamError(f"{chosen} is not an output format.", f"Use {', '.join(FORMATS)}.")
    for name in ("world_size", "nnodes", "nproc_per_node"):
        value = getattr(options, name)
        if value is not None and value < 1:
            flag = name.replace("_", "-")
            raise DreamError(f"--{flag} {value} is not possible.", "Use a whole number from 1.")
    if options.nnodes is not None and options.nproc_per_node is None:
        raise DreamError(
            f"--nnodes {options.nnodes} alone does not say how many processes there are.",
            "Give --nproc-per-node, too.",
        )
    if options.world_size is not None and options.processes != options.world_size:
        raise DreamError(
            f"--world-size {options.world_size} contradicts "
            f"--nnodes {options.nnodes or 1} --nproc-per-node {options.nproc_per_node}.",
            "Leave one of them out.",
        )
