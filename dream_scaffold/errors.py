"""The one error that the `dream` command shows to its user."""


class DreamError(Exception):
    """What is wrong, and what to do about it. Printed as `error: ...` and `help: ...`."""

    def __init__(self, fact: str, remedy: str) -> None:
        super().__init__(f"{fact} {remedy}")
        self.fact = fact
        self.remedy = remedy
