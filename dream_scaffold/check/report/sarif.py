"""`--output-format sarif`: SARIF 2.1.0, for code scanning and editors."""

import json
import os
import re
from pathlib import PurePath
from typing import TYPE_CHECKING
from urllib.parse import quote

from ... import __version__
from ..facts import Finding, Fix, Place, Rule
from ..rules import RULES
from ..runner import choose_rules
from .portable import advice, fingerprints, plain, posix

if TYPE_CHECKING:
    from ..engine import Result

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
LEVELS = {"error": "error", "warning": "warning", "info": "note"}
ROOT = "%SRCROOT%"
PLACEHOLDER = re.compile(r"\{(\d+)\}")


def render(result: "Result") -> str:
    rules = choose_rules(RULES, result.options.select, result.options.ignore)
    indices = {rule.CODE: index for index, rule in enumerate(rules)}
    run = {
        "tool": {
            "driver": {
                "name": "dream check",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": [_rule(rule) for rule in rules],
            }
        },
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {
            ROOT: {"description": {"text": "The folder that dream check ran in."}}
        },
        "results": [
            _result(finding, indices.get(finding.code, -1), fingerprint)
            for finding, fingerprint in zip(result.findings, fingerprints(result), strict=True)
        ],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _rule(rule: Rule) -> dict[str, object]:
    manual = (rule.__doc__ or rule.NAME).strip()
    # What stands before the samples says what is wrong; the whole also says what to do.
    description = manual.partition("\n\nBad:")[0]
    return {
        "id": rule.CODE,
        "name": rule.NAME,
        "shortDescription": _message(manual.partition("\n")[0]),
        "fullDescription": _message(description),
        "help": {**_message(manual), "markdown": _escaped(manual)},
        "defaultConfiguration": {"level": LEVELS[rule.SEVERITY]},
    }


def _result(finding: Finding, rule: int, fingerprint: str) -> dict[str, object]:
    found: dict[str, object] = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": LEVELS[finding.severity],
        "message": _message(advice(finding)),
        "locations": [{"physicalLocation": _location(finding.place)}],
        "partialFingerprints": {"dreamCheck/v1": fingerprint},
    }
    if finding.notes:
        found["relatedLocations"] = [
            {
                "id": number,
                "message": _message(note.text),
                "physicalLocation": _location(note.place),
            }
            for number, note in enumerate(finding.notes, start=1)
        ]
    if finding.fix is not None:
        found["fixes"] = [_fix(finding.fix)]
    if finding.configs:
        found["properties"] = {"configurations": [plain(name) for name in finding.configs]}
    return found


def _fix(fix: Fix) -> dict[str, object]:
    changes: dict[str, list[object]] = {}
    for edit in fix.edits:
        changes.setdefault(edit.place.path, []).append(
            {
                "deletedRegion": _region(edit.place),
                "insertedContent": {"text": plain(edit.text)},
            }
        )
    return {
        "description": _message(fix.title),
        "artifactChanges": [
            {"artifactLocation": _artifact(path), "replacements": replacements}
            for path, replacements in changes.items()
        ],
        "properties": {"applicability": "safe" if fix.safe else "unsafe"},
    }


def _location(place: Place) -> dict[str, object]:
    return {"artifactLocation": _artifact(place.path), "region": _region(place)}


def _artifact(path: str) -> dict[str, object]:
    """Where a file is: from the root, or as a whole where it lies outside."""
    if os.path.isabs(path) or os.pardir in PurePath(path).parts:
        # The standard wants no `..` in what is relative to a root.
        whole = posix(os.path.abspath(path))
        return {"uri": "file://" + quote(os.fsencode("/" + whole.lstrip("/")))}
    return {"uri": quote(os.fsencode(posix(path))), "uriBaseId": ROOT}


def _region(place: Place) -> dict[str, int]:
    return {
        "startLine": place.line,
        "startColumn": place.column,
        "endLine": place.end_line,
        "endColumn": place.end_column,
    }


def _message(text: str) -> dict[str, str]:
    return {"text": _escaped(text)}


def _escaped(text: str) -> str:
    """The text with braces doubled where a reader would take them for a placeholder."""
    return PLACEHOLDER.sub(r"{{\1}}", plain(text))
