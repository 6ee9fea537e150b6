"""`dream explain`: what the rules say of themselves."""

from collections.abc import Sequence

from ..facts import Rule


def manual(rule: Rule) -> str:
    """The manual of one rule."""
    text = (rule.__doc__ or "").strip()
    return f"{rule.CODE} {rule.NAME} ({rule.SEVERITY})\n\n{text}"


def list_rules(rules: Sequence[Rule]) -> str:
    """One line a rule: code, severity, name and what it is about."""
    width = max(len(rule.NAME) for rule in rules)
    lines = []
    for rule in rules:
        first = (rule.__doc__ or "").strip().partition("\n")[0]
        lines.append(f"{rule.CODE}  {rule.SEVERITY:<7}  {rule.NAME:<{width}}  {first}")
    return "\n".join([*lines, "", "`dream explain CODE` prints the manual of one."])
