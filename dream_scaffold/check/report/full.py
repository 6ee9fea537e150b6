"""`--output-format full`: each finding with the source it speaks of, and what to do."""

import os
import sys
from typing import TYPE_CHECKING

from ..facts import Finding, Place
from .summary import closing

if TYPE_CHECKING:
    from ..engine import Result

MOST_NOTES = 3
LONGEST = 400
"""Characters of a source line that are shown."""

COLORS = {"error": "1;31", "warning": "1;33", "info": "1;36", "frame": "1;34", "bold": "1"}


class Paint:
    """Terminal colours, if there is a terminal that wants them."""

    def __init__(self) -> None:
        plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
        self.on = sys.stdout.isatty() and not plain

    def __call__(self, text: str, color: str) -> str:
        return f"\x1b[{COLORS[color]}m{text}\x1b[0m" if self.on else text


def render(result: "Result") -> str:
    paint = Paint()
    shown = {module.shown: module.lines for module in result.sources.modules()}
    blocks = []
    if not result.options.statistics:
        blocks = [_block(finding, shown, paint) for finding in result.findings]
    return "\n\n".join([*blocks, "\n".join(closing(result))])


def _block(finding: Finding, sources: dict[str, list[str]], paint: Paint) -> str:
    notes = finding.notes[:MOST_NOTES]
    width = max(len(str(place.line)) for place in (finding.place, *(n.place for n in notes)))
    bar = paint("|", "frame")
    title = paint(f"{finding.severity}[{finding.code}]", finding.severity)
    lines = [f"{title}: {paint(finding.message, 'bold')}"]
    lines += _frame(finding.place, "-->", "^", "", finding.severity, width, sources, paint)
    for note in notes:
        lines += _frame(note.place, ":::", "-", note.text, "frame", width, sources, paint)
    lines.append(f"{' ' * width} {bar}")
    if finding.help:
        lines.append(f"{' ' * width} = {paint('help', 'bold')}: {finding.help}")
    if finding.configs:
        lines.append(f"{' ' * width} = {paint('in', 'bold')}: {', '.join(finding.configs)}")
    return "\n".join(lines)


def _frame(
    place: Place,
    arrow: str,
    mark: str,
    label: str,
    color: str,
    width: int,
    sources: dict[str, list[str]],
    paint: Paint,
) -> list[str]:
    """Where a place is, and its first line with the part that is meant underlined."""
    bar, margin = paint("|", "frame"), " " * width
    lines = [f"{margin}{paint(arrow, 'frame')} {place.path}:{place.line}:{place.column}"]
    source = sources.get(place.path, [])
    if place.line > len(source):
        return lines
    text = source[place.line - 1].rstrip()
    column, end = place.column, place.end_column
    if place.end_line != place.line:
        end = len(text) + 1
    if len(text) > LONGEST:
        # Of a line that nobody wrote by hand, the part that is meant.
        first = max(column - LONGEST // 2, 1)
        text = text[first - 1 : first - 1 + LONGEST]
        column, end = column - first + 1, min(end - first + 1, len(text) + 1)
    before = text[: column - 1].expandtabs(4)
    length = max(len(text[: end - 1].expandtabs(4)) - len(before), 1)
    under = paint(f"{mark * length} {label}".rstrip(), color)
    number = paint(f"{place.line:>{width}}", "frame")
    return [
        *lines,
        f"{margin} {bar}",
        f"{number} {bar} {text.expandtabs(4)}",
        f"{margin} {bar} {' ' * len(before)}{under}",
    ]
