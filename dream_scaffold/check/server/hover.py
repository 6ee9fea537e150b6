"""What an editor shows where the pointer rests: the manual of the rule that speaks there."""

from lsprotocol.types import Hover, MarkupContent, MarkupKind, Position, Range

from ...errors import DreamError
from .documents import Document
from .manuals import markdown
from .positions import Ruler
from .projects import Report
from .silence import code_at


def hover(
    report: Report | None, path: str, document: Document, position: Position, codec: str
) -> Hover | None:
    """The manuals of the rules that a suppression or a finding at a position names."""
    ruler = Ruler(document.text, codec)
    named = code_at(document.text, position.line + 1, ruler.column(position))
    findings = () if report is None else report.findings.get(path, ())
    codes = [named] if named is not None else []
    if named is None:
        codes = [f.code for f in findings if _holds(ruler.range(f.place), position)]
    parts = []
    for code in dict.fromkeys(codes):
        try:
            parts.append(markdown(code))
        except DreamError:
            continue  # Of another tool.
    if not parts:
        return None
    return Hover(MarkupContent(MarkupKind.Markdown, "\n\n---\n\n".join(parts)))


def _holds(span: Range, position: Position) -> bool:
    first, last = span.start, span.end
    at = (position.line, position.character)
    return (first.line, first.character) <= at <= (last.line, last.character)
