"""Findings as an editor shows them."""

from lsprotocol.types import (
    CodeDescription,
    Diagnostic,
    DiagnosticRelatedInformation,
    DiagnosticSeverity,
    DiagnosticTag,
    Location,
)
from pygls.uris import from_fs_path

from ..facts import Finding
from ..report.portable import advice, plain
from ..rules import rule_of
from .positions import Ruler
from .projects import Report

SEVERITIES = {
    "error": DiagnosticSeverity.Error,
    "warning": DiagnosticSeverity.Warning,
    "info": DiagnosticSeverity.Information,
}
SUPERFLUOUS = ("DT001", "DT203")
"""Rules about what could as well not be there."""


def diagnostics(report: Report, path: str, codec: str) -> list[Diagnostic]:
    """The findings in one file."""
    ruler = Ruler(report.texts.get(path, ""), codec)
    return [_diagnostic(report, found, ruler) for found in report.findings.get(path, ())]


def uri_of(report: Report, path: str) -> str:
    """The address of a file, as the editor wrote it where it is open."""
    document = report.snapshot.documents.get(path)
    return document.uri if document is not None else from_fs_path(path) or ""


def _diagnostic(report: Report, finding: Finding, ruler: Ruler) -> Diagnostic:
    return Diagnostic(
        range=ruler.range(finding.place),
        message=plain(advice(finding)),
        severity=SEVERITIES[finding.severity],
        code=finding.code,
        code_description=_description(finding.code),
        source="dream",
        tags=[DiagnosticTag.Unnecessary] if finding.code in SUPERFLUOUS else None,
        related_information=_related(report, finding, ruler.codec) or None,
    )


def _description(code: str) -> CodeDescription | None:
    """Where the manual of a rule stands: at the head of its module."""
    file = getattr(rule_of(code), "__file__", None)
    uri = from_fs_path(file) if isinstance(file, str) else None
    return None if uri is None else CodeDescription(href=uri)


def _related(report: Report, finding: Finding, codec: str) -> list[DiagnosticRelatedInformation]:
    related = []
    for note in finding.notes:
        path = report.path(note.place)
        span = Ruler(report.texts.get(path, ""), codec).range(note.place)
        location = Location(uri=uri_of(report, path), range=span)
        related.append(DiagnosticRelatedInformation(location, plain(note.text)))
    return related
