"""`--output-format json`: for programs. Version 1.

A finding that several configurations show names the first of them under `config`.
"""

import json
from typing import TYPE_CHECKING

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
            "fix": None,
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
