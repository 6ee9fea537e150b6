"""What an editor offers to do about findings."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lsprotocol.types import (
    CodeAction,
    CodeActionKind,
    OptionalVersionedTextDocumentIdentifier,
    Position,
    Range,
    TextDocumentEdit,
    TextEdit,
    WorkspaceEdit,
)

from ..facts import Edit, Finding
from ..fix.edits import newline_of
from ..report.portable import plain
from .diagnostics import diagnostics, uri_of
from .positions import Ruler
from .projects import Report
from .silence import suppression

FIX_ALL = "source.fixAll.dream"


@dataclass(frozen=True)
class Offer:
    """What can be offered in one file, on the ground of one report."""

    report: Report
    path: str
    codec: str
    versioned: bool
    """Whether the editor takes edits that name the version they are meant for."""

    def quick_fixes(self, span: Range) -> Iterator[CodeAction]:
        """The fix of every finding that a selection touches, and its suppression."""
        findings = self.report.findings.get(self.path, ())
        shown = diagnostics(self.report, self.path, self.codec)
        silenced: set[tuple[str, int]] = set()
        for finding, diagnostic in zip(findings, shown, strict=True):
            if not _touch(span, diagnostic.range):
                continue
            if finding.fix is not None:
                yield CodeAction(
                    title=plain(finding.fix.title),
                    kind=CodeActionKind.QuickFix,
                    diagnostics=[diagnostic],
                    is_preferred=finding.fix.safe,
                    edit=self._edit(finding.fix.edits),
                )
            edit = suppression(finding, self._text(self.path))
            if edit is not None and (finding.code, edit.place.line) not in silenced:
                silenced.add((finding.code, edit.place.line))
                yield CodeAction(
                    title=f"Suppress {finding.code} on this line",
                    kind=CodeActionKind.QuickFix,
                    diagnostics=[diagnostic],
                    is_preferred=False,
                    edit=self._edit([edit]),
                )

    def has_safe_fix(self) -> bool:
        return any(_is_safe(finding) for finding in self.report.findings.get(self.path, ()))

    def replacement(self, text: str) -> CodeAction | None:
        """All safe fixes at once, given what they make of the file."""
        from difflib import SequenceMatcher

        old = self.report.texts[self.path]
        ruler = Ruler(old, self.codec)
        before, after = old.splitlines(keepends=True), text.splitlines(keepends=True)
        starts = _starts(before)
        edits = [
            TextEdit(Range(ruler.at(starts[i]), ruler.at(starts[j])), "".join(after[k:m]))
            for tag, i, j, k, m in SequenceMatcher(None, before, after, False).get_opcodes()
            if tag != "equal"
        ]
        if not edits:
            return None
        change = self._workspace_edit({self.path: edits})
        return CodeAction(title="Fix all that is safe to fix", kind=FIX_ALL, edit=change)

    def _edit(self, edits: Iterable[Edit]) -> WorkspaceEdit:
        changes: dict[str, list[TextEdit]] = {}
        for edit in edits:
            path = self.report.path(edit.place)
            text = self._text(path)
            new = edit.text.replace("\n", newline_of(text))
            span = Ruler(text, self.codec).range(edit.place)
            changes.setdefault(path, []).append(TextEdit(span, plain(new)))
        return self._workspace_edit(changes)

    def _workspace_edit(self, changes: dict[str, list[TextEdit]]) -> WorkspaceEdit:
        if not self.versioned:
            uris = {uri_of(self.report, path): edits for path, edits in changes.items()}
            return WorkspaceEdit(changes=uris)
        return WorkspaceEdit(
            document_changes=[
                TextDocumentEdit(self._identifier(path), list(edits))
                for path, edits in changes.items()
            ]
        )

    def _identifier(self, path: str) -> OptionalVersionedTextDocumentIdentifier:
        document = self.report.snapshot.documents.get(path)
        version = None if document is None else document.version
        return OptionalVersionedTextDocumentIdentifier(uri_of(self.report, path), version)

    def _text(self, path: str) -> str:
        return self.report.texts.get(path, "")


def wants(only: Sequence[str] | None, kind: str) -> bool:
    """Whether an editor that asks for some kinds of actions wants this one."""
    return only is None or any(kind == each or kind.startswith(f"{each}.") for each in only)


def _is_safe(finding: Finding) -> bool:
    return finding.fix is not None and finding.fix.safe


def _touch(one: Range, other: Range) -> bool:
    return _key(one.start) <= _key(other.end) and _key(other.start) <= _key(one.end)


def _key(position: Position) -> tuple[int, int]:
    return position.line, position.character


def _starts(lines: Iterable[str]) -> list[int]:
    """Where each line begins, and the end."""
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    return starts
