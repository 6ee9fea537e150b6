"""The errors whose text is the whole explanation: fact, place, remedy."""

from collections.abc import Mapping
from pathlib import Path


class RunError(RuntimeError):
    """A fault in a project that the runtime refuses to run with; reported without traceback."""


class HookError(RunError, NotImplementedError):
    """Hooks and configuration do not fit; `dream check` reports the same, line by line."""

    def __init__(self, text: str, place: str) -> None:
        super().__init__(text)
        self.place = place


class Stopped(SystemExit):
    """The run has saved itself and ends early, in order, with a code that says so."""


class ConfigError(ValueError):
    """A contradiction in a configuration.

    `code` is the rule of `dream check` that reports the same fault before anything
    runs; `fact` says what is wrong, with its value, and `remedy` what to change.
    """

    def __init__(self, code: str, fact: str, remedy: str) -> None:
        super().__init__(f"{fact} {remedy}")
        self.code = code
        self.fact = fact
        self.remedy = remedy

    def __reduce__(self) -> tuple[type["ConfigError"], tuple[str, str, str]]:
        return type(self), (self.code, self.fact, self.remedy)


def refuse_unless(
    holds: bool, field: str, value: object, allowed: str, code: str = "DT114"
) -> None:
    """Raise the `ConfigError` of a value outside its range."""
    if not holds:
        raise ConfigError(code, f"{field}={value!r} is not possible.", f"Use {allowed}.")


def refuse_unless_counts(
    owner: object, least: Mapping[str, int], *, optional: bool = False, code: str = "DT114"
) -> None:
    """Raise the `ConfigError` of the first field that is no whole number from its least."""
    for name, lowest in least.items():
        value = getattr(owner, name)
        allowed = f"a whole number from {lowest}" + (", or None" if optional else "")
        holds = (optional and value is None) or is_count(value, lowest)
        refuse_unless(holds, name, value, allowed, code)


def is_count(value: object, least: int) -> bool:
    """Whether `value` is a whole number of at least `least` (a bool is not a number)."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def place_of(error: Exception) -> str:
    """Where in the user's code `error` arose: `file:line, in function`; empty for nowhere."""
    import sysconfig
    import traceback

    libraries = (Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib"))
    others = (Path(__file__).parents[1], *libraries)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).exists()
        and not any(folder in Path(frame.filename).parents for folder in others)
    ]
    return "".join(f"{frame.filename}:{frame.lineno}, in {frame.name}" for frame in frames[-1:])
