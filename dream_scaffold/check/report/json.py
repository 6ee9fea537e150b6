"""`--output-format json`: for programs. Version 1.

A finding that several configurations show names the first of them under `config`.
"""

import json
from typing import TYPE_CHECKING

from ..facts import Fix
from .summary import counts

if TYPE_CHECKING:
    from ..engine import Result


def render(result: "Result") -> str:
    configs = [
        {
            "name": config.name,
            "path": config.place.path,
            "line": config.place.line,
            "trainer": trainer.name,
            "axes": dict(config.axes),
            "features": dict(config.features),
            "hooks": dict(config.hooks),
        }
        for trainer in result.project.trainers
        for config in trainer.configs
    ]
    findings = [
        {
            "code": finding.code,
            "name": finding.name,
            "severity": finding.severity,
            "message": finding.message,
            "help": finding.help,
            "path": finding.place.path,
            "line": finding.place.line,
            "column": finding.place.column,
            "end_line": finding.place.end_line,
            "end_column": finding.place.end_column,
            "config": finding.config,
            "fix": _fix(finding.fix),
        }
        for finding in result.findings
    ]
    report = {
        "version": 1,
        "configs": configs,
        "findings": findings,
        "summary": counts(result),
    }
    return json.dumps(report, indent=2)


def _fix(fix: Fix | None) -> dict[str, object] | None:
    if fix is None:
        return None
    edits = [
        {
            "path": edit.place.path,
            "line": edit.place.line,
            "column": edit.place.column,
            "end_line": edit.place.end_line,
            "end_column": edit.place.end_column,
            "text": edit.text,
        }
        for edit in fix.edits
    ]
    return {
        "applicability": "safe" if fix.safe else "unsafe",
        "title": fix.title,
        "edits": edits,
    }
