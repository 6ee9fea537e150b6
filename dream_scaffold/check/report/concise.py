"""`--output-format concise`: one line a finding."""

from typing import TYPE_CHECKING

from .summary import closing

if TYPE_CHECKING:
    from ..engine import Result


def render(result: "Result") -> str:
    lines = []
    for finding in result.findings if not result.options.statistics else ():
        place = finding.place
        configs = f" [{', '.join(finding.configs)}]" if finding.configs else ""
        lines.append(
            f"{place.path}:{place.line}:{place.column}: "
            f"{finding.severity}: {finding.code} {finding.message}{configs}"
        )
    return "\n".join([*lines, *closing(result)])
