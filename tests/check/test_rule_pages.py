"""`dream explain`, docs/rules.md and the README's list: each says what the rules say."""

import json
import os
import re
import sys

import pytest
import rule_pages
from markdown_it import MarkdownIt

from dream_scaffold.check import explain
from dream_scaffold.check.report.catalogue import FAMILIES, entry, families
from dream_scaffold.check.rules import RULES

ENTRIES = [entry(rule) for rule in RULES]


def test_the_pages_are_as_the_rules_make_them() -> None:
    """`make docs` renews them."""
    assert rule_pages.PAGE.read_text(encoding="utf-8") == rule_pages.rules_page()
    assert rule_pages.README.read_text(encoding="utf-8") == rule_pages.readme()


def sections() -> dict[str, tuple[str, str]]:
    """Heading of a rule -> the text of its section as a reader sees it: prose, and samples."""
    parser = MarkdownIt("commonmark")
    found: dict[str, tuple[str, str]] = {}
    for part in rule_pages.rules_page().split("\n### ")[1:]:
        heading, _, body = part.partition("\n")
        prose, samples = [], []
        for token in parser.parse(body.partition("\n## ")[0]):
            if token.type == "fence":
                samples.append(token.content)
            elif token.type == "inline":
                children = token.children or []
                prose += [" " if c.type == "softbreak" else c.content for c in children]
                prose.append(" ")
        found[heading] = "".join(prose), "".join(samples)
    return found


def words(text: str) -> list[str]:
    return text.replace("`", "").split()


def test_a_section_says_all_of_a_manual_and_nothing_else() -> None:
    found = sections()
    assert list(found) == [f"{each.code} {each.name}" for each in ENTRIES]
    for each in ENTRIES:
        prose, samples = found[f"{each.code} {each.name}"]
        blocks = each.manual.split("\n\n")
        told = " ".join(block for block in blocks if not rule_pages.is_sample(block))
        shown = " ".join(block for block in blocks if rule_pages.is_sample(block))
        # The first words are the severity, and how to fix it.
        assert words(prose)[-len(words(told)) :] == words(told), each.code
        assert words(prose)[0].startswith(each.severity)
        assert samples.split() == shown.split(), each.code


def test_links_of_the_lists_lead_to_a_rule() -> None:
    anchors = {rule_pages.anchor(each) for each in ENTRIES}
    for text, prefix in (
        (rule_pages.rules_page(), ""),
        (rule_pages.readme_list(), "docs/rules.md"),
    ):
        links = re.findall(rf"\]\({re.escape(prefix)}#([^)]+)\)", text)
        assert sorted(links) == sorted(anchors)


def test_every_rule_is_in_the_family_of_its_code() -> None:
    found = list(families(RULES))
    assert [(code, title) for code, title, _ in found] == list(FAMILIES.items())
    assert [each for _, _, members in found for each in members] == sorted(ENTRIES)


def test_a_manual_that_speaks_of_a_fix_has_one() -> None:
    fixes = rule_pages.fixes()
    lacking = [e.code for e in ENTRIES if "`--fix`" in e.manual and "`--fix`" not in fixes[e.code]]
    assert lacking == []


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        ("Call `self.a_b` of *args in a_b[0].", "Call `self.a_b` of \\*args in a\\_b\\[0\\]."),
        ("See docs/check.md.", "See [docs/check.md](check.md)."),
        ("See `docs/check.md`.", "See `docs/check.md`."),
    ],
)
def test_prose_becomes_markdown(block: str, shown: str) -> None:
    assert rule_pages._prose(block) == shown


def test_samples_become_code() -> None:
    manual = "What.\n\nBad:\n\n    def f():\n        pass\n\n    x = (1\n\nGood: none."
    assert [*rule_pages.blocks_of(manual)] == [
        "What.",
        "Bad:",
        "    def f():\n        pass\n\n    x = (1",
        "Good: none.",
    ]
    assert rule_pages._sample("    x = 1\n\n    y = 2") == "```python\nx = 1\n\ny = 2\n```"
    assert rule_pages._sample("    def f(:") == "```\ndef f(:\n```"


def test_the_list_by_family() -> None:
    blocks = explain(None).split("\n\n")
    assert blocks[1].startswith("DT1  Configuration\n  DT101  error    several-auto-axes ")
    assert len(blocks) == len(FAMILIES) + 1
    rows = [line for block in blocks[:-1] for line in block.split("\n")[1:]]
    assert [row.split()[:3] for row in rows] == [[e.code, e.severity, e.name] for e in ENTRIES]
    assert [row for row, each in zip(rows, ENTRIES, strict=True) if each.summary not in row] == []


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_terminal_is_not_overrun(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((columns, 24)))
    monkeypatch.setenv("COLUMNS", str(columns))
    listed = explain(None)
    assert max(map(len, listed.split("\n"))) <= columns
    assert [e.code for e in ENTRIES if words(e.summary)[-1] not in words(listed)] == []
    for each in ENTRIES:
        manual = explain(each.code)
        assert manual.split()[3:] == each.manual.split()
        prose = [block for block in manual.split("\n\n") if not rule_pages.is_sample(block)]
        assert max(len(line) for block in prose for line in block.split("\n")) <= columns
        samples = [block for block in each.manual.split("\n\n") if rule_pages.is_sample(block)]
        assert [block for block in samples if block not in manual] == []


def test_json_of_one_and_of_all() -> None:
    one = json.loads(explain("dt201", json=True))
    assert list(one) == ["version", "code", "name", "severity", "summary", "manual"]
    assert one["code"] == "DT201" and one["manual"].startswith(f"{one['summary']}\n\n")
    every = json.loads(explain(None, json=True))
    assert list(every) == ["version", "rules"] and every["version"] == one.pop("version") == 1
    assert [each["code"] for each in every["rules"]] == [each.code for each in ENTRIES]
    assert one in every["rules"]
