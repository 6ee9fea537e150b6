"""What a check is asked to do: the command line, and `[tool.dream.check]` below it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

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

    arguments: tuple[str, ...] = ()
    """The options that the training script is started with: `--no-compile`."""

    fix: bool = False
    """Carry out what findings propose; with `unsafe_fixes` all of it, else what is safe."""

    unsafe_fixes: bool = False
    diff: bool = False
    """Show what `fix` would change, and change nothing."""

    watch: bool = False
    """Check again whenever a file changes."""

    exclude: tuple[str, ...] = ()
    """Patterns of paths, from the project's root, that are not checked."""

    per_file_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Pattern of paths -> the rules that are not applied there."""

    root: str = ""
    """The folder of the pyproject.toml that was read; empty: none."""

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
    "exclude": list,
    "per-file-ignores": dict,
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
    nothing: tuple[object, ...] = (None, (), {})
    given = {item.name for item in fields(options) if getattr(options, item.name) not in nothing}
    left_open = {name: value for name, value in settings.items() if name not in given}
    options = replace(options, root=root or "", **left_open)  # type: ignore[arg-type]
    _validate(options)
    return options


def read_settings(path: str) -> dict[str, object]:
    """The table `[tool.dream.check]` of a pyproject.toml, by the names of `Options`."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        fact = f"{os.path.relpath(path)} cannot be read: {error}."
        raise DreamError(fact, "Mend that.") from None
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
    if not isinstance(table, dict):
        raise DreamError(f"{shown} gives tool.dream.check a value.", "Make it a table.")
    return {key.replace("-", "_"): _setting(key, value, shown) for key, value in table.items()}


def _setting(key: str, value: object, shown: str) -> object:
    """One setting, judged. Raises `DreamError`."""
    wanted = SETTINGS.get(key)
    if wanted is None:
        from difflib import get_close_matches

        near = get_close_matches(key, SETTINGS, n=1)
        first = f"Did you mean {near[0]}? " if near else ""
        raise DreamError(
            f"{shown} sets {key} in [tool.dream.check], which is no setting.",
            f"{first}The settings are {', '.join(SETTINGS)}.",
        )
    lists = list(value.values()) if isinstance(value, dict) else [value]
    texts = all(isinstance(one, list) and all(isinstance(t, str) for t in one) for one in lists)
    if type(value) is not wanted or (wanted in (list, dict) and not texts):
        kinds: dict[object, str] = {list: "a list of texts", dict: "a table of lists of texts"}
        kind = kinds.get(wanted)
        raise DreamError(
            f"{shown} sets {key} = {value!r} in [tool.dream.check].",
            f"Give it {kind or f'a value of type {wanted.__name__}'}.",
        )
    if isinstance(value, dict):
        return {pattern: tuple(codes) for pattern, codes in value.items()}
    return tuple(value) if isinstance(value, list) else value


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
