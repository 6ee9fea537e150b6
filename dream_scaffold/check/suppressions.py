"""Comments that silence findings: `# noqa: DT201` on a line, or on the def or class around it."""

import ast
import re
from collections.abc import Collection, Iterator
from io import StringIO
from typing import NamedTuple

from .facts import Match, Place
from .source import Module, Sources

NOQA = re.compile(r"#\s*noqa(?P<codes>\s*:\s*[A-Z]+[0-9]+(?:[,\s]+[A-Z]+[0-9]+)*)?", re.IGNORECASE)
CODE = re.compile(r"[A-Z]+[0-9]+", re.IGNORECASE)


class Comment(NamedTuple):
    """One suppression: the codes that it names, each with its place; none: every code."""

    codes: dict[str, Place]


class Suppressions:
    """The suppressions of every file that was read, and which of them did something."""

    def __init__(self, sources: Sources) -> None:
        self.comments: dict[str, dict[int, Comment]] = {}
        self.headers: dict[str, list[tuple[range, int]]] = {}
        self.used: set[Place] = set()
        for module in sources.modules():
            if "noqa" in module.text.lower():
                self.comments[module.shown] = dict(_comments(module))
                self.headers[module.shown] = list(_headers(module.tree))

    def cover(self, code: str, place: Place) -> bool:
        """Whether a finding is suppressed, and note what suppressed it."""
        comments = self.comments.get(place.path)
        if not comments:
            return False
        lines = {place.line, place.end_line}
        around = [
            (len(span), line) for span, line in self.headers[place.path] if place.line in span
        ]
        if around:
            lines.add(min(around)[1])
        covered = False
        for line in lines:
            comment = comments.get(line)
            if comment is not None and (not comment.codes or code in comment.codes):
                covered = True
                if comment.codes:
                    self.used.add(comment.codes[code])
        return covered

    def unused(self, active: Collection[str]) -> list[Match]:
        """Suppressions of the rules `active` that silenced nothing."""
        return [
            Match(place, f"noqa: {code} suppresses nothing.", "Remove it.")
            for comments in self.comments.values()
            for comment in comments.values()
            for code, place in comment.codes.items()
            if place not in self.used and code in active
        ]


def _comments(module: Module) -> Iterator[tuple[int, Comment]]:
    import tokenize

    try:
        for token in tokenize.generate_tokens(StringIO(module.text).readline):
            if token.type == tokenize.COMMENT and (found := NOQA.search(token.string)):
                line, start = token.start
                codes = {}
                for code in CODE.finditer(found["codes"] or ""):
                    first = start + found.start("codes") + code.start() + 1
                    last = first + len(code.group())
                    codes[code.group().upper()] = Place(module.shown, line, first, line, last)
                yield line, Comment(codes)
    except (tokenize.TokenError, SyntaxError):
        return


def _headers(tree: ast.Module) -> Iterator[tuple[range, int]]:
    """The lines of every function and class, and the line of its `def` or `class`."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield range(node.lineno, (node.end_lineno or node.lineno) + 1), node.lineno
