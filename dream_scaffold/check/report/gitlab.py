"""`--output-format gitlab`: a Code Quality report for GitLab CI."""

import json
from typing import TYPE_CHECKING

from .portable import advice, fingerprints, plain, posix

if TYPE_CHECKING:
    from ..engine import Result

SEVERITIES = {"error": "major", "warning": "minor", "info": "info"}


def render(result: "Result") -> str:
    issues = [
        {
            "description": plain(advice(finding)),
            "check_name": finding.code,
            "fingerprint": fingerprint,
            "severity": SEVERITIES[finding.severity],
            "location": {
                "path": plain(posix(finding.place.path)),
                "lines": {"begin": finding.place.line, "end": finding.place.end_line},
            },
        }
        for finding, fingerprint in zip(result.findings, fingerprints(result), strict=True)
    ]
    return json.dumps(issues, indent=2)
