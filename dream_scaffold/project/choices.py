"""Values of an option, and what to say of others."""

from collections.abc import Collection
from difflib import get_close_matches

from ..errors import DreamError


def check_choice(flag: str, value: str, known: Collection[str], more: str = "") -> None:
    """Raise `DreamError` where `value` is none of the `known` values of `flag`.

    `more` says what else is possible, after the list of them.
    """
    if value not in known:
        near = get_close_matches(value, known, n=1)
        remedy = f"Did you mean {near[0]}? Known are" if near else "Use one of"
        fact = f"{flag} {value} is unknown."
        raise DreamError(fact, f"{remedy} {', '.join(known)}{more}.")
