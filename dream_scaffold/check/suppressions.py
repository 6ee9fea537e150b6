"""Comments that silence findings: `# noqa: DT201` on a line, or on the def or class around it."""

import ast
import re
from collections.abc import Collection, Iterator
from io import StringIO
from typing import NamedTuple

from .facts import Edit, Fix, Match, Place
from .source import Module, Sources

NOQA = re.compile(r"#\s*noqa(?P<codes>\s*:\s*[A-Z]+[0-9]+(?:[,\s]+[A-Z]+[0-9]+)*)?", re.IGNORECASE)
CODE = re.compile(r"[A-Z]+[0-9]+", re.IGNORECASE)


class Comment(NamedTuple):
    """One suppression: the codes that it names, each with its place; none: every code."""

    codes: tuple[tuple[str, Place], ...]


class Suppressions:
    """The suppressions of every file that was read, and which of them did something."""

    def __init__(self, sources: Sources) -> None:
        self.comments: dict[str, dict[int, Comment]] = {}
        self.headers: dict[str, list[tuple[range, int]]] = {}
        self.lines: dict[str, list[str]] = {}
        self.used: set[Place] = set()
        for module in sources.modules():
            if "noqa" in module.text.lower():
                self.comments[module.shown] = dict(_comments(module))
                self.headers[module.shown] = list(_headers(module.tree))
                self.lines[module.shown] = module.lines

    def cover(self, code: str, place: Place) -> bool:
        """Whether a finding is suppressed, and note what suppressed it."""
        comments = self.comments.get(place.path)
        if not comments:
            return False
        lines = {place.line, place.end_line}
        around = [
            (len(span), line) for span, line in self.headers[place.path] if place.line in span
        ]
        lines |= {min(around)[1]} if around else set()
        covered = False
        for line in lines:
            comment = comments.get(line)
            if comment is None:
                continue
            named = [at for known, at in comment.codes if known == code]
            covered |= bool(named) or not comment.codes
            self.used.update(named[:1])
        return covered

    def unused(self, active: Collection[str], known: Collection[str]) -> list[Match]:
        """Suppressions that silenced nothing: of rules `active`, or of none that is `known`."""
        return [
            Match(
                place,
                f"noqa: {code} suppresses nothing."
                if code in known
                else f"noqa: {code} names no rule.",
                "Remove it.",
                fix=Fix("Remove it", (self._removal(comment, place),)),
            )
            for comments in self.comments.values()
            for comment in comments.values()
            for code, place in comment.codes
            if place not in self.used
            and (code in active or (code.startswith("DT") and code not in known))
        ]

    def _removal(self, comment: Comment, place: Place) -> Edit:
        """The edit that takes a code out of its comment; with the last one the comment goes."""
        text = self.lines[place.path][place.line - 1]
        start, end = place.column - 1, place.end_column - 1
        if len(comment.codes) > 1:
            is_last = comment.codes[-1][1] == place
            while is_last and start > 0 and text[start - 1] in ", \t":
                start -= 1
            while not is_last and end < len(text) and text[end] in ", \t":
                end += 1
        else:
            start = text.rindex("#", 0, start)
            rest = text[end:].strip()
            end = len(text) if not rest else end
            start = len(text[:start].rstrip()) if not rest else start
        return Edit(place._replace(column=start + 1, end_column=end + 1), "")


def _comments(module: Module) -> Iterator[tuple[int, Comment]]:
    import tokenize

    try:
        for token in tokenize.generate_tokens(StringIO(module.text).readline):
            if token.type == tokenize.COMMENT and (found := NOQA.search(token.string)):
                line, start = token.start
                codes = []
                for code in CODE.finditer(found["codes"] or ""):
                    first = start + found.start("codes") + code.start() + 1
                    place = Place(module.shown, line, first, line, first + len(code.group()))
                    codes.append((code.group().upper(), place))
                yield line, Comment(tuple(codes))
    except (tokenize.TokenError, SyntaxError):
        return


def _headers(tree: ast.Module) -> Iterator[tuple[range, int]]:
    """The lines of every function and class, decorators included, and that of its header."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
            yield range(first, (node.end_lineno or node.lineno) + 1), node.lineno
