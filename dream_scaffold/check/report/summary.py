"""What closes a report for people: counts, statistics and, on request, each configuration."""

from collections import Counter
from typing import TYPE_CHECKING

from ..facts import ORDER

if TYPE_CHECKING:
    from ..engine import Result


def counts(result: "Result") -> dict[str, int]:
    """Severity -> the number of findings."""
    found = Counter(finding.severity for finding in result.findings)
    return {severity: found[severity] for severity in ORDER}


def closing(result: "Result") -> list[str]:
    """The last lines of a report."""
    lines = _statistics(result) if result.options.statistics else []
    if result.options.verbose:
        lines += _configurations(result)
    number = counts(result)
    trainers = result.project.trainers
    configs = sum(len(trainer.configs) for trainer in trainers)
    shown = ", ".join(_plural(count, severity) for severity, count in number.items() if count)
    if number["error"] or number["warning"]:
        return [*lines, f"Found {shown}."]
    notes = f" ({shown})" if shown else ""
    checked = f"{_plural(len(trainers), 'trainer')}, {_plural(configs, 'configuration')}"
    return [*lines, f"All checks passed{notes}: {checked}."]


def _statistics(result: "Result") -> list[str]:
    found = Counter((finding.code, finding.name) for finding in result.findings)
    return [f"{count:>5}  {code}  {name}" for (code, name), count in found.most_common()]


def _configurations(result: "Result") -> list[str]:
    lines = []
    for trainer in result.project.trainers:
        for config in trainer.configs:
            wide = " ".join(f"{axis}={size}" for axis, size in config.axes.items() if size != 1)
            hooks = [
                name if need == "required" else f"{name}?"
                for name, need in config.hooks.items()
                if need != "unused" and name.startswith("apply_")
            ]
            lines.append(
                f"{config.name} ({config.place}) for {trainer.name}: {wide or 'one device'};"
                f" calls {', '.join(hooks) or 'no apply_ hook'}."
            )
    return lines


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 or noun == "info" else f"{count} {noun}s"
