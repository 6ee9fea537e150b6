"""`# noqa: DT201`, written where it takes effect."""

import ast
from collections.abc import Iterator

from ..facts import Edit, Finding, Place
from ..source import Module
from ..suppressions import CODE, NOQA

BLIND = ("DT000", "DT001")
"""Rules that no comment silences."""


def suppression(finding: Finding, text: str) -> Edit | None:
    """The edit that silences a finding; None where no comment can."""
    if finding.code in BLIND:
        return None
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    module = Module(finding.place.path, finding.place.path, "", text, tree, None)
    for line in dict.fromkeys(_lines(finding.place, tree)):
        edit = _edit(module, line, finding.code)
        if edit is not None:
            return edit
    return None


def code_at(text: str, line: int, column: int) -> str | None:
    """The code that a suppression names at a place, from 1."""
    lines = text.split("\n")
    found = NOQA.search(lines[line - 1]) if 1 <= line <= len(lines) else None
    if found is None or found["codes"] is None:
        return None
    start = found.start("codes") + 1
    for code in CODE.finditer(found["codes"]):
        if start + code.start() <= column <= start + code.end():
            return code.group().upper()
    return None


def _lines(place: Place, tree: ast.Module) -> Iterator[int]:
    """The lines whose comments cover a place, the nearest first."""
    yield place.line
    yield place.end_line
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    around = [
        (node.end_lineno - node.lineno, node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, kinds)
        and node.end_lineno is not None
        and node.lineno <= place.line <= node.end_lineno
    ]
    if around:
        yield min(around)[1]


def _edit(module: Module, line: int, code: str) -> Edit | None:
    """A code at the end of a line's suppression, or a suppression at the line's end."""
    lines = list(module.lines)
    old = lines[line - 1]
    found = NOQA.search(old)
    if found is not None and found["codes"]:
        at, added = found.end(), f", {code}"
    else:
        at, added = len(old.rstrip()), f"  # noqa: {code}"
    lines[line - 1] = old[:at] + added + old[at:]
    if not _names("\n".join(lines), line, code):
        return None  # The line ends within a text, or goes on in the next.
    return Edit(Place(module.shown, line, at + 1, line, at + 1), added)


def _names(text: str, line: int, code: str) -> bool:
    """Whether the comment of a line names a code."""
    import tokenize
    from io import StringIO

    try:
        for token in tokenize.generate_tokens(StringIO(text).readline):
            if token.type == tokenize.COMMENT and token.start[0] == line:
                found = NOQA.search(token.string)
                return found is not None and code in (found["codes"] or "")
    except (tokenize.TokenError, SyntaxError):
        pass
    return False
