"""Texts, paths and marks of identity as other programs can take them."""

import os
from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING

from ..facts import Finding

if TYPE_CHECKING:
    from ..engine import Result


def plain(text: str) -> str:
    """The text without what UTF-8 cannot hold: a lone surrogate is spelt as its escape."""
    return text.encode("utf-8", "backslashreplace").decode()


def posix(path: str) -> str:
    """The path with slashes, whatever the system writes."""
    return path.replace(os.sep, "/")


def advice(finding: Finding) -> str:
    """What is wrong and what to do about it."""
    return f"{finding.message} {finding.help}".rstrip()


def fingerprints(result: "Result") -> list[str]:
    """What tells each finding from all others, in their order; it survives moved lines.

    Of findings alike in rule, file, message and source line, the first ones keep theirs.
    """
    sources = {module.shown: module.lines for module in result.sources.modules()}
    seen: Counter[str] = Counter()
    marks = []
    for finding in result.findings:
        lines, line = sources.get(finding.place.path, []), finding.place.line
        source = lines[line - 1].strip() if line <= len(lines) else ""
        key = "\0".join((finding.code, posix(finding.place.path), finding.message, source))
        marks.append(_digest(f"{key}\0{seen[key]}"))
        seen[key] += 1
    return marks


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
