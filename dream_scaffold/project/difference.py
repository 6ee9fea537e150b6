"""One file before and after, as a unified diff."""

from collections.abc import Iterator
from difflib import unified_diff


def difference(path: str, before: bytes | None, after: bytes | None) -> Iterator[str]:
    """Line by line; None: there is no such file."""
    old, new = (
        (content or b"").decode(errors="replace").splitlines() for content in (before, after)
    )
    was = "/dev/null" if before is None else f"a/{path}"
    becomes = "/dev/null" if after is None else f"b/{path}"
    return unified_diff(old, new, was, becomes, lineterm="")
