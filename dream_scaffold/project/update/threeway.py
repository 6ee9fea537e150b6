"""Three texts into one: what only one side changed is taken, what both changed is marked.

The one library for this in pure Python is under the GPL, and git may not be there.
"""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

OPEN, BASE, MIDDLE, CLOSE = "<<<<<<<", "|||||||", "=======", ">>>>>>>"
"""The markers of git, which editors know."""


class Labels(NamedTuple):
    """What the sides of a conflict are called."""

    yours: str
    base: str
    new: str


class Merged(NamedTuple):
    """The text, and how many conflicts it holds."""

    text: str
    conflicts: int


class _Region(NamedTuple):
    """A stretch of the three texts between lines that all of them share, and those lines."""

    base: list[str]
    yours: list[str]
    new: list[str]
    shared: list[str]


def merge(base: str | None, yours: str, new: str, labels: Labels) -> Merged:
    """Merge line by line. Without a base every difference is a conflict."""
    mine, theirs = yours.splitlines(keepends=True), new.splitlines(keepends=True)
    old = _common(mine, theirs) if base is None else base.splitlines(keepends=True)
    lines: list[str] = []
    conflicts = 0
    for region in _regions(old, mine, theirs):
        if region.yours == region.new:
            lines += region.yours
        elif base is not None and region.base == region.yours:
            lines += region.new
        elif base is not None and region.base == region.new:
            lines += region.yours
        else:
            conflicts += 1
            lines += _marked(region, labels, base is not None)
        lines += region.shared
    return Merged("".join(lines), conflicts)


def has_markers(text: str) -> bool:
    """Whether conflicts are left in a text: an opening marker, and later a closing one."""
    lines = text.splitlines()
    opened = [index for index, line in enumerate(lines) if line.startswith(f"{OPEN} ")]
    closed = [index for index, line in enumerate(lines) if line.startswith(f"{CLOSE} ")]
    middle = [index for index, line in enumerate(lines) if line == MIDDLE]
    return any(o < m < c for o in opened[:1] for m in middle for c in closed[-1:])


def _marked(region: _Region, labels: Labels, has_base: bool) -> Iterator[str]:
    yield f"{OPEN} {labels.yours}\n"
    yield from _ended(region.yours)
    if has_base:
        yield f"{BASE} {labels.base}\n"
        yield from _ended(region.base)
    yield f"{MIDDLE}\n"
    yield from _ended(region.new)
    yield f"{CLOSE} {labels.new}\n"


def _ended(lines: list[str]) -> Iterator[str]:
    """Lines that all end: the last one of a file need not."""
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n"


def _regions(base: Sequence[str], yours: Sequence[str], new: Sequence[str]) -> Iterator[_Region]:
    at_base = at_yours = at_new = 0
    for start, end, mine, theirs in _shared(base, yours, new):
        yield _Region(
            list(base[at_base:start]),
            list(yours[at_yours:mine]),
            list(new[at_new:theirs]),
            list(base[start:end]),
        )
        length = end - start
        at_base, at_yours, at_new = end, mine + length, theirs + length


def _shared(
    base: Sequence[str], yours: Sequence[str], new: Sequence[str]
) -> Iterator[tuple[int, int, int, int]]:
    """Stretches of `base` that both others have: start, end, start in yours and in new."""
    mine, theirs = _blocks(base, yours), _blocks(base, new)
    one = other = 0
    while one < len(mine) and other < len(theirs):
        (start, at, length), (begin, there, size) = mine[one], theirs[other]
        low, high = max(start, begin), min(start + length, begin + size)
        if low < high:
            yield low, high, at + low - start, there + low - begin
        if start + length < begin + size:
            one += 1
        else:
            other += 1
    yield len(base), len(base), len(yours), len(new)


def _blocks(base: Sequence[str], other: Sequence[str]) -> list[tuple[int, int, int]]:
    matcher = SequenceMatcher(None, base, other, autojunk=False)
    return [(block.a, block.b, block.size) for block in matcher.get_matching_blocks()]


def _common(one: Sequence[str], other: Sequence[str]) -> list[str]:
    return [line for a, _, size in _blocks(one, other) for line in one[a : a + size]]
