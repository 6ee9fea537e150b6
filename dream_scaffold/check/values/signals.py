"""How evaluation leaves a place other than by going on."""

from .domain import Value


class Signal(Exception):
    """What a statement or expression of the evaluated code does to its surroundings."""


class Raised(Signal):
    """It raises `error`: an exception class of the project or of Python, or None if unknown."""

    def __init__(self, error: Value = None) -> None:
        self.error = error


class Returned(Signal):
    """The function returns."""

    def __init__(self, value: Value) -> None:
        self.value = value


class LeftLoop(Signal):
    """The loop ends by `break`."""


class NextTurn(Signal):
    """The loop goes on by `continue`."""


class Exhausted(Exception):
    """Evaluation took more steps than any configuration is worth."""
