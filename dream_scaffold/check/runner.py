"""Rules applied to facts: which findings there are, and which are suppressed."""

from collections.abc import Iterable, Iterator, Sequence

from ..errors import DreamError
from .facts import ORDER, Finding, Project, Rule, Severity
from .source import Sources
from .suppressions import Suppressions


def choose_rules(
    rules: Sequence[Rule], select: Sequence[str] | None, ignore: Sequence[str] | None
) -> list[Rule]:
    """The rules whose code begins with one of `select` and with none of `ignore`.

    Raises `DreamError` for what no code begins with.
    """
    for prefix in (*(select or ()), *(ignore or ())):
        if not any(rule.CODE.startswith(prefix.upper()) for rule in rules):
            raise DreamError(f"{prefix} is no rule.", "`dream explain` lists all rules.")
    wanted = tuple(prefix.upper() for prefix in select) if select else ("",)
    unwanted = tuple(prefix.upper() for prefix in ignore or ())
    return [
        rule
        for rule in rules
        if rule.CODE.startswith(wanted) and not (unwanted and rule.CODE.startswith(unwanted))
    ]


def find(
    project: Project, rules: Sequence[Rule], sources: Sources, known: Sequence[Rule]
) -> list[Finding]:
    """Every finding that no comment suppresses, by place; equal ones once. `known`: all rules."""
    suppressions = Suppressions(sources)
    kept = [
        finding
        for finding in _apply(project, rules)
        if not suppressions.cover(finding.code, finding.place)
    ]
    unused = suppressions.unused({rule.CODE for rule in rules}, {rule.CODE for rule in known})
    kept += _apply(project.with_unused(unused), [rule for rule in rules if rule.CODE == "DT001"])
    return sorted(_merge(kept), key=lambda finding: (finding.place, finding.code))


def _apply(project: Project, rules: Iterable[Rule]) -> Iterator[Finding]:
    for rule in rules:
        for match in rule.check(project):
            yield Finding(
                code=rule.CODE,
                name=rule.NAME,
                severity=(match.severity or rule.SEVERITY) if match.certain else "info",
                message=match.message,
                help=match.help,
                place=match.place,
                configs=() if match.config is None else (match.config,),
                notes=match.notes,
                fix=match.fix,
            )


def _merge(findings: Iterable[Finding]) -> list[Finding]:
    """Report once what several configurations show alike, as severely as any of them."""
    merged: dict[object, Finding] = {}
    for finding in findings:
        key = (finding.code, finding.place, finding.message)
        known = merged.get(key)
        if known is None:
            merged[key] = finding
            continue
        severity: Severity = min(known.severity, finding.severity, key=ORDER.index)
        merged[key] = Finding(
            code=known.code,
            name=known.name,
            severity=severity,
            message=known.message,
            help=known.help,
            place=known.place,
            configs=tuple(dict.fromkeys(known.configs + finding.configs)),
            notes=tuple(dict.fromkeys(known.notes + finding.notes)),
            fix=known.fix or finding.fix,
        )
    return list(merged.values())
