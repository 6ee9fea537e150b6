"""`dream explain`: what the rules say of themselves."""

import sys
from collections.abc import Sequence
from shutil import get_terminal_size
from textwrap import fill

from ..facts import Rule
from .catalogue import entry, families

UNBOUNDED = 1_000
NARROWEST = 60


def manual(rule: Rule) -> str:
    """The manual of one rule."""
    told = entry(rule)
    width = _columns()
    paragraphs = told.manual.split("\n\n")
    if width < max(map(len, told.manual.split("\n"))):
        paragraphs = [_filled(paragraph, width) for paragraph in paragraphs]
    text = "\n\n".join(paragraphs)
    return f"{told.code} {told.name} ({told.severity})\n\n{text}"


def list_rules(rules: Sequence[Rule]) -> str:
    """The rules by family, one line each: code, severity, name and what it is about."""
    name_width = max(len(rule.NAME) for rule in rules)
    width = _columns()
    entries = [entry(rule) for rule in rules]
    starts = {e.code: f"  {e.code}  {e.severity:<7}  {e.name:<{name_width}}" for e in entries}
    one_line = all(len(starts[e.code]) + 2 + len(e.summary) <= width for e in entries)
    blocks = []
    for code, title, members in families(rules):
        lines = [f"{code}  {title}"]
        for told in members:
            start = starts[told.code]
            if one_line:
                lines.append(f"{start}  {told.summary}")
            else:
                lines += [start.rstrip(), _indented(told.summary, width)]
        blocks.append("\n".join(lines))
    return "\n\n".join([*blocks, "`dream explain CODE` prints the manual of one."])


def as_json(rules: Sequence[Rule], one: bool) -> str:
    """The rules as one JSON object, or that of `one`; its keys stay."""
    import json

    told = [
        {
            "code": each.code,
            "name": each.name,
            "severity": each.severity,
            "summary": each.summary,
            "manual": each.manual,
        }
        for each in map(entry, rules)
    ]
    report: dict[str, object] = {"version": 1}
    return json.dumps(report | (told[0] if one else {"rules": told}), indent=2)


def _columns() -> int:
    """How wide a line may be: as the terminal, or as it likes in a file or pipe."""
    return max(get_terminal_size().columns, NARROWEST) if sys.stdout.isatty() else UNBOUNDED


def _filled(paragraph: str, width: int) -> str:
    """A paragraph of prose in lines of another width; samples stay as they are."""
    if paragraph.startswith("    "):
        return paragraph
    return fill(" ".join(paragraph.split()), width, break_on_hyphens=False)


def _indented(text: str, width: int) -> str:
    margin = " " * 9
    return fill(
        text, width, initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False
    )
