"""Every rule against its own samples, and the form that a rule has."""

import re
from collections.abc import Callable
from itertools import pairwise

import pytest
from small_projects import options_of

from dream_scaffold import resources
from dream_scaffold.check import Result
from dream_scaffold.check.facts import Rule
from dream_scaffold.check.rules import RULES

Check = Callable[..., Result]

PASSES = [(rule, sample) for rule in RULES for sample in rule.PASSES]
MATCHES = [(rule, sample) for rule in RULES for sample in rule.MATCHES]


def named(value: object) -> str:
    return getattr(value, "CODE", "")


@pytest.mark.parametrize(("rule", "sample"), PASSES, ids=named)
def test_passes(project: Check, rule: Rule, sample: str) -> None:
    result = project(sample, verbose=True, **options_of(sample))
    # A hit that is only possible is an info, whatever the rule.
    found = [f for f in result.findings if (f.code, f.severity) == (rule.CODE, rule.SEVERITY)]
    assert found == []


@pytest.mark.parametrize(("rule", "sample"), MATCHES, ids=named)
def test_matches(project: Check, rule: Rule, sample: str) -> None:
    result = project(sample, verbose=True, **options_of(sample))
    found = [f for f in result.findings if f.code == rule.CODE]
    assert found and found[0].severity == rule.SEVERITY


def test_everything_that_the_hinge_refuses_has_a_rule() -> None:
    hinge = [*(resources.runtime() / "configs").glob("*.py"), resources.runtime() / "contract.py"]
    codes = {code for path in hinge for code in re.findall(r'"(DT\d{3})"', path.read_text())}
    assert "DT108" in codes
    assert codes <= {rule.CODE for rule in RULES}


@pytest.mark.parametrize("rule", RULES, ids=named)
def test_the_manual_says_everything(rule: Rule) -> None:
    manual = rule.__doc__ or ""
    assert manual.partition("\n")[0].endswith(".")
    for part in ("Bad:", "Good", "How to fix:"):
        assert part in manual
    assert rule.PASSES and rule.MATCHES


def test_codes_ascend_and_names_are_unique() -> None:
    assert all(one.CODE < other.CODE for one, other in pairwise(RULES))
    assert len({rule.NAME for rule in RULES}) == len(RULES)


def test_rules_import_facts_only() -> None:
    for rule in RULES:
        path = str(getattr(rule, "__file__", ""))
        with open(path) as file:
            imports = re.findall(r"^\s*from (\.\S*) import|^import (\S+)", file.read(), re.M)
        assert {local for local, _ in imports if local} == {"..facts"}, path
