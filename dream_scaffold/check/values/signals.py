"""How evaluation leaves a place other than by going on."""

from .domain import Value


class Signal(Exception):
    """What a statement or expression of the evaluated code does to its surroundings."""


class Raised(Signal):
    """It raises."""


class Returned(Signal):
    """The function returns."""

    def __init__(self, value: Value) -> None:
        self.value = value


class LeftLoop(Signal):
    """The loop ends by `break`."""


class NextTurn(Signal):
    """The loop goes on by `continue`."""


class Generator(Signal):
    """The function turns out to be a generator."""


class Exhausted(Exception):
    """Evaluation took more steps than any configuration is worth."""
