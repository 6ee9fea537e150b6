"""docs/rules.md and the README's list, made from the rules; run as a script, it renews them."""

import ast
import re
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from functools import cache
from pathlib import Path

from small_projects import PRELUDE, options_of, split_files

from dream_scaffold.check import Options, check
from dream_scaffold.check.facts import Fix, Rule
from dream_scaffold.check.fix.proposals import with_fixes
from dream_scaffold.check.report.catalogue import Entry, families
from dream_scaffold.check.rules import RULES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "rules.md"
README = ROOT / "README.md"
BEGIN, END = "<!-- rules -->", "<!-- /rules -->"

FIXES = {
    (): "",
    (True,): "`--fix`",
    (False,): "`--unsafe-fixes`",
    (False, True): "`--fix`, some by `--unsafe-fixes`",
}
"""Whether the fixes of a rule are safe -> what carries them out."""


def rules_page() -> str:
    """docs/rules.md: every family as a table, then every manual."""
    found = list(families(RULES))
    number = sum(len(members) for _, _, members in found)
    parts = [
        "# Rules",
        f"The {number} rules of [`dream check`](check.md). `dream explain DT201` prints the same "
        "in a terminal.\nAn error is reported only where it is certain; what is only possible is "
        "an info, whatever the\nseverity of the rule.",
        "This page is made from the rules themselves: `make docs` renews it.",
    ]
    parts += [_table(code, title, members) for code, title, members in found]
    for code, title, members in found:
        parts.append(f"## {code}: {title}")
        parts += [_section(each) for each in members]
    return "\n\n".join(parts) + "\n"


def readme_list() -> str:
    """What stands in the README between the two marks."""
    found = list(families(RULES))
    number = sum(len(members) for _, _, members in found)
    lines = [
        BEGIN,
        "<details>",
        f"<summary>All {number} rules</summary>",
        "",
        "| Family | Rules |",
        "|---|---|",
    ]
    for code, title, members in found:
        names = ", ".join(f"[{e.code}](docs/rules.md#{anchor(e)}) {e.name}" for e in members)
        lines.append(f"| {code}: {title} | {names} |")
    return "\n".join([*lines, "", "</details>", END])


def readme() -> str:
    """The README with its list of rules as it should be."""
    text = README.read_text(encoding="utf-8")
    before, mark, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (mark and end):
        raise ValueError(f"README.md lacks {BEGIN} or {END}.")
    return before + readme_list() + after


def anchor(told: Entry) -> str:
    """Where the page has a rule."""
    return f"{told.code}-{told.name}".lower()


def _table(code: str, title: str, members: list[Entry]) -> str:
    lines = [f"**{code}: {title}**", "", "| Rule | Severity | What it reports | Fix |"]
    lines.append("|---|---|---|---|")
    for told in members:
        link = f"[{told.code} {told.name}](#{anchor(told)})"
        summary = _prose(told.summary).replace("|", "\\|")
        lines.append(f"| {link} | {told.severity} | {summary} | {fixes()[told.code]} |")
    return "\n".join(lines)


def _section(told: Entry) -> str:
    fix = fixes()[told.code]
    facts = f"*{told.severity}*" + (f", fixed by {fix}" if fix else "")
    blocks = [_sample(b) if is_sample(b) else _prose(b) for b in blocks_of(told.manual)]
    return "\n\n".join([f"### {told.code} {told.name}", facts, *blocks])


def blocks_of(manual: str) -> Iterator[str]:
    """Paragraphs of prose and whole samples: empty lines inside of one do not end it."""
    held: list[str] = []
    for paragraph in manual.split("\n\n"):
        if is_sample(paragraph):
            held.append(paragraph)
            continue
        if held:
            yield "\n\n".join(held)
            held = []
        yield paragraph
    if held:
        yield "\n\n".join(held)


def is_sample(block: str) -> bool:
    return block.lstrip("\n").startswith("    ")


def _sample(block: str) -> str:
    lines = [line.removeprefix("    ") for line in block.strip("\n").split("\n")]
    text = "\n".join(lines)
    return f"```{'python' if _is_python(text) else ''}\n{text}\n```"


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _prose(paragraph: str) -> str:
    """Prose as Markdown: what is not code is plain, and a page that is named is a link."""
    parts = re.split(r"(`[^`]*`)", paragraph)
    parts[::2] = [_plain(part) for part in parts[::2]]
    return "".join(parts)


def _plain(text: str) -> str:
    text = re.sub(r"([\\*_<\[\]])", r"\\\1", text)
    return re.sub(r"\bdocs/([\w-]+\.md)", r"[docs/\1](\1)", text)


@cache
def fixes() -> dict[str, str]:
    """Code -> how what the rule finds can be fixed, as its own samples show."""
    return {rule.CODE: FIXES[tuple(sorted(_fixes_of(rule)))] for rule in RULES}


def _fixes_of(rule: Rule) -> set[bool]:
    return {fix.safe for sample in rule.MATCHES for fix in _fixes_in(sample, rule.CODE)}


def _fixes_in(sample: str, code: str) -> Iterator[Fix]:
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for name, text in split_files(sample).items():
            path = Path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text((PRELUDE if name == "train.py" else "") + text, encoding="utf-8")
        result = check(Options(paths=("train.py",), **options_of(sample)))
        found = with_fixes(result)
    for each in found:
        if each.code == code and each.fix is not None:
            yield each.fix


if __name__ == "__main__":
    PAGE.write_text(rules_page(), encoding="utf-8", newline="\n")
    README.write_text(readme(), encoding="utf-8", newline="\n")
