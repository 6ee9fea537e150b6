"""Edits on texts: which go together, and what comes of them."""

import ast
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..facts import Edit, Finding, Fix

ENDING = re.compile(r"\r\n|\r|\n")


class Change(NamedTuple):
    """A stretch of a text, by its characters, and what takes its place."""

    start: int
    end: int
    text: str


def applied(
    texts: Mapping[str, str], findings: Iterable[Finding], unsafe: bool
) -> tuple[dict[str, str], int]:
    """The texts that change, by path, and how many fixes were carried out.

    A fix that meets another one, or after which a file would no longer be Python, waits.
    """
    changes: dict[str, list[Change]] = {}
    count = 0
    done: set[Fix] = set()
    for finding in findings:
        fix = finding.fix
        if fix is None or fix in done or not (fix.safe or unsafe):
            continue
        done.add(fix)
        own = _changes(texts, fix.edits)
        if own is None or any(_meets(changes.get(path, []), made) for path, made in own.items()):
            continue
        trial = {path: [*changes.get(path, []), *made] for path, made in own.items()}
        if all(is_python(_carried_out(texts[path], made)) for path, made in trial.items()):
            changes |= trial
            count += 1
    return {path: _carried_out(texts[path], made) for path, made in changes.items()}, count


def edited(texts: Mapping[str, str], edits: Iterable[Edit]) -> dict[str, str] | None:
    """The texts that `edits` change; None where one lies outside, or leaves no Python."""
    changes = _changes(texts, edits)
    if changes is None:
        return None
    after = {path: _carried_out(texts[path], made) for path, made in changes.items()}
    return after if all(map(is_python, after.values())) else None


def is_python(text: str) -> bool:
    """Whether a text can be parsed."""
    try:
        ast.parse(text.removeprefix("\ufeff"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _changes(texts: Mapping[str, str], edits: Iterable[Edit]) -> dict[str, list[Change]] | None:
    """The edits as stretches of the texts; None where one lies outside."""
    changes: dict[str, list[Change]] = {}
    for place, new in edits:
        text = texts.get(place.path)
        if text is None:
            return None
        starts = line_starts(text)
        if not (1 <= place.line <= place.end_line <= len(starts)):
            return None
        start = starts[place.line - 1] + place.column - 1
        end = starts[place.end_line - 1] + place.end_column - 1
        if not 0 <= start <= end <= len(text):
            return None
        newline = newline_of(text)
        changes.setdefault(place.path, []).append(Change(start, end, new.replace("\n", newline)))
    return changes


def line_starts(text: str) -> list[int]:
    """Where each line begins, as Python counts lines; a byte order mark is no character."""
    first = len(text) - len(text.removeprefix("\ufeff"))
    return [first, *(found.end() for found in ENDING.finditer(text))]


def newline_of(text: str) -> str:
    """How the first line of a text ends."""
    found = ENDING.search(text)
    return "\n" if found is None else found.group()


def _meets(known: list[Change], new: list[Change]) -> bool:
    """Whether stretches overlap or touch: then their order would matter."""
    return any(one.start <= other.end and other.start <= one.end for one in known for other in new)


def _carried_out(text: str, changes: list[Change]) -> str:
    for change in sorted(changes, reverse=True):
        text = text[: change.start] + change.text + text[change.end :]
    return text
