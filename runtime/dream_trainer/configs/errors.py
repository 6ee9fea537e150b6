"""The errors whose text is the whole explanation: fact, place, remedy."""


class RunError(RuntimeError):
    """A fault in a project that the runtime refuses to run with; reported without traceback."""


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


def refuse_unless(holds: bool, field: str, value: object, allowed: str) -> None:
    """Raise the `ConfigError` of a value outside its range."""
    if not holds:
        raise ConfigError("DT114", f"{field}={value!r} is not possible.", f"Use {allowed}.")


def is_count(value: object, least: int) -> bool:
    """Whether `value` is a whole number of at least `least` (a bool is not a number)."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
