"""One more element at the end of a list, a call or an import, in the manner of those before it."""

import ast
from collections.abc import Sequence
from io import StringIO
from tokenize import COMMENT, DEDENT, INDENT, NEWLINE, NL, TokenInfo, generate_tokens
from typing import NamedTuple

from ..facts import Edit, Place
from ..source import Module

LAYOUT = {COMMENT, DEDENT, INDENT, NEWLINE, NL}


class Elements(NamedTuple):
    """What stands in brackets, or behind `import`."""

    container: ast.expr | ast.ImportFrom
    last_start: ast.AST | None
    """None: there is none."""

    last_end: ast.AST | None


def elements_of(node: ast.expr | ast.ImportFrom) -> Elements:
    """The elements of a display, the arguments of a call, the names of an import."""
    if isinstance(node, ast.Dict):
        if not node.values:
            return Elements(node, None, None)
        return Elements(node, node.keys[-1] or node.values[-1], node.values[-1])
    if isinstance(node, ast.Call):
        given: list[ast.AST] = [*node.args, *node.keywords]
        given.sort(key=lambda item: (getattr(item, "lineno", 0), getattr(item, "col_offset", 0)))
    elif isinstance(node, ast.ImportFrom):
        given = list(node.names)
    else:
        given = list(getattr(node, "elts", []))
    last = given[-1] if given else None
    return Elements(node, last, last)


def appended(module: Module, node: ast.expr | ast.ImportFrom, texts: Sequence[str]) -> list[Edit]:
    """The edits that write `texts` behind the last element; comments stay where they are."""
    container, first, last = elements_of(node)
    whole = module.place(container)
    closing = (whole.end_line, whole.end_column - 1)
    if module.lines[closing[0] - 1][closing[1] - 1] in ")]}":
        closing = (closing[0], closing[1] - 1)
    if first is None or last is None:
        comma = "," if isinstance(node, ast.Tuple) else ""
        return [_insertion(module, closing, ", ".join(texts) + comma)]
    start, end = module.place(first), module.place(last)
    tail = _tail(module, (end.end_line, end.end_column - 1), closing)
    at = (end.end_line, end.end_column - 1) if tail is None else tail.end
    has_comma = tail is not None and tail.string == ","
    before = module.lines[start.line - 1][: start.column - 1]
    if start.line == whole.line or before.strip(" \t*"):
        lead = " " if has_comma else ", "
        return [_insertion(module, at, lead + ", ".join(texts))]
    indent = before[: len(before) - len(before.lstrip())]
    written = ",".join(f"\n{indent}{text}" for text in texts)
    if closing[0] == at[0]:
        return [_insertion(module, at, ("" if has_comma else ",") + written)]
    line_end = (at[0], len(module.lines[at[0] - 1]))
    if has_comma:
        return [_insertion(module, line_end, f"{written},")]
    if at == line_end:
        return [_insertion(module, at, f",{written}")]
    return [_insertion(module, at, ","), _insertion(module, line_end, written)]


def _tail(module: Module, start: tuple[int, int], end: tuple[int, int]) -> TokenInfo | None:
    """The last token between two positions that is no comment and no line end."""
    tokens = generate_tokens(StringIO(module.text).readline)
    between = [t for t in tokens if start <= t.start < end and t.type not in LAYOUT]
    return between[-1] if between else None


def _insertion(module: Module, at: tuple[int, int], text: str) -> Edit:
    line, column = at[0], at[1] + 1
    return Edit(Place(module.shown, line, column, line, column), text)
