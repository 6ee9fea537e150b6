"""The one error that the `dream` command shows to its user, and how it shows it."""

import sys


class DreamError(Exception):
    """What is wrong, and what to do about it. Printed as `error: ...` and `help: ...`."""

    def __init__(self, fact: str, remedy: str) -> None:
        super().__init__(f"{fact} {remedy}")
        self.fact = fact
        self.remedy = remedy


def tell(error: DreamError, *, as_json: bool) -> None:
    """Two lines on standard error; for programs also one object on standard output."""
    print(f"error: {error.fact}\nhelp: {error.remedy}", file=sys.stderr)
    if as_json:
        tell_program(error.fact, error.remedy)


def tell_program(fact: str, remedy: str) -> None:
    """What went wrong as one JSON object; its keys stay."""
    import json

    print(json.dumps({"version": 1, "error": {"fact": fact, "help": remedy}}, indent=2))
