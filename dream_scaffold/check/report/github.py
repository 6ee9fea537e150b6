"""`--output-format github`: annotations of a GitHub Actions run."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..engine import Result

COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}


def render(result: "Result") -> str:
    lines = []
    for finding in result.findings:
        place = finding.place
        message = f"{finding.message} {finding.help}".rstrip()
        lines.append(
            f"::{COMMANDS[finding.severity]} file={_property(place.path)},line={place.line},"
            f"col={place.column},endLine={place.end_line},endColumn={place.end_column},"
            f"title={finding.code} {finding.name}::{_data(message)}"
        )
    return "\n".join(lines)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
