"""The first `dream check` of a new project, in the same process."""

from pathlib import Path

from ..errors import DreamError


def check_project(project: Path) -> str:
    """What the check finds, one line each, or that it finds nothing."""
    from ..check import Options, check

    try:
        findings = check(Options(paths=(str(project),), output_format="concise")).findings
    except DreamError as error:
        return f"It could not be checked: {error}"
    if not findings:
        return "dream check: all hooks match the configuration."
    found = [f"  {each.place}: {each.code} {each.message}" for each in findings]
    return "\n".join(["dream check found:", *found])
