"""The manual of a rule as an editor shows it beside the source."""

from textwrap import dedent

from ..report.catalogue import entry
from ..rules import rule_of


def markdown(code: str) -> str:
    """A rule's name and manual. Raises `DreamError` where there is no such rule."""
    told = entry(rule_of(code))
    parts = [f"**{told.code} {told.name}** ({told.severity})"]
    sample: list[str] = []
    for paragraph in [*told.manual.split("\n\n"), ""]:
        if paragraph.startswith("    "):
            sample.append(paragraph)
            continue
        if sample:
            parts.append(f"```python\n{dedent(chr(10).join(sample))}\n```")
            sample = []
        if paragraph:
            parts.append(paragraph)
    return "\n\n".join(parts)
