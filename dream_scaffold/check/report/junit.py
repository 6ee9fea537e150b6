"""`--output-format junit`: every finding a test, failed unless it only informs."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from ..facts import Finding
from .portable import advice, posix

if TYPE_CHECKING:
    from ..engine import Result

TOOL = "dream check"
ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML cannot hold, not even as a reference."""


def render(result: "Result") -> str:
    files: dict[str, list[Finding]] = {}
    for finding in result.findings:
        files.setdefault(finding.place.path, []).append(finding)
    root = Element("testsuites", name=TOOL)
    for path, findings in files.items():
        suite = _suite(root, _legal(posix(path)), len(findings), _failures(findings))
        for finding in findings:
            _add_case(suite, finding)
    if not files:
        SubElement(_suite(root, TOOL, 1, 0), "testcase", name="all checks", classname=TOOL)
    root.set("tests", str(max(len(result.findings), 1)))
    root.set("failures", str(_failures(result.findings)))
    indent(root)
    # Characters beyond ASCII become references: a terminal can print those.
    text = tostring(root, encoding="us-ascii", xml_declaration=False).decode("ascii")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}'


def _suite(root: Element, name: str, tests: int, failures: int) -> Element:
    counts = {"tests": str(tests), "failures": str(failures), "errors": "0", "skipped": "0"}
    return SubElement(root, "testsuite", {"name": name, **counts})


def _failures(findings: Iterable[Finding]) -> int:
    return sum(finding.severity != "info" for finding in findings)


def _add_case(suite: Element, finding: Finding) -> None:
    place = finding.place
    path = _legal(posix(place.path))
    case = SubElement(
        suite,
        "testcase",
        name=f"{finding.code} {finding.name} ({place.line}:{place.column})",
        classname=path,
        file=path,
        line=str(place.line),
    )
    message = _legal(finding.message)
    if finding.severity == "info":
        told = SubElement(case, "system-out")
    else:
        told = SubElement(case, "failure", type=finding.severity, message=message)
    configs = f" [{', '.join(finding.configs)}]" if finding.configs else ""
    lines = [f"{place.path}:{place.line}:{place.column}: {advice(finding)}{configs}"]
    lines += [
        f"{note.place.path}:{note.place.line}:{note.place.column}: {note.text}"
        for note in finding.notes
    ]
    told.text = _legal("\n".join(lines))


def _legal(text: str) -> str:
    return ILLEGAL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
