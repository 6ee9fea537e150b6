"""A project as an editor has it: what is open in it counts, not what is on the disk."""

import os
from collections.abc import Iterable, Mapping
from contextlib import chdir
from dataclasses import dataclass, field, replace

from ...errors import DreamError
from ..engine import check
from ..facts import Finding, Place
from ..fix.edits import applied
from ..fix.proposals import with_fixes
from ..fix.run import MOST_PASSES
from ..options import Options
from ..source import SKIPPED_FOLDERS, is_runtime, project_root
from .documents import Document

MARK = "dream_trainer"
"""Whoever uses the runtime names it."""


@dataclass(frozen=True)
class Snapshot:
    """What was open when a check began: absolute path -> text and version."""

    root: str
    documents: Mapping[str, Document]

    @property
    def texts(self) -> dict[str, str]:
        return {path: document.text for path, document in self.documents.items()}


@dataclass(frozen=True)
class Report:
    """What a check found, by absolute path; findings keep the paths that `place` knows."""

    snapshot: Snapshot
    findings: Mapping[str, tuple[Finding, ...]] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    """Absolute path -> text, of every file that was read."""

    refusal: DreamError | None = None
    """Why there was no check."""

    def path(self, place: Place) -> str:
        """The absolute path of a place."""
        return os.path.normpath(os.path.join(os.path.realpath(self.snapshot.root), place.path))


def root_of(path: str, folders: Iterable[str]) -> str:
    """The project that a file belongs to: its pyproject.toml, the editor's folder, its own."""
    folder = os.path.dirname(path)
    found = project_root(folder)
    if found is not None:
        return found
    around = [each for each in folders if path.startswith(os.path.join(each, ""))]
    return max(around, key=len, default=folder)


def report(snapshot: Snapshot, options: Options) -> Report:
    """Check a project as it is in the editor."""
    try:
        with chdir(snapshot.root):
            return _report(snapshot, options)
    except DreamError as error:
        return Report(snapshot, refusal=error)
    except OSError as error:
        fact = f"{snapshot.root} cannot be read: {error}."
        return Report(snapshot, refusal=DreamError(fact, "Open a folder that is there."))


def fix_all(snapshot: Snapshot, options: Options, path: str) -> str:
    """The text of an open file after all of its safe fixes, as `--fix` carries them out.

    A fix that also changes another file waits. Raises `DreamError` as `check` does.
    """
    with chdir(snapshot.root):
        shown, texts = os.path.relpath(path), snapshot.texts
        for _ in range(MOST_PASSES):
            result = check(_options(snapshot, options), texts)
            changed, _ = applied({shown: texts[path]}, with_fixes(result), unsafe=False)
            if not changed:
                break
            texts[path] = changed[shown]
    return texts[path]


def _report(snapshot: Snapshot, options: Options) -> Report:
    texts = snapshot.texts
    result = check(_options(snapshot, options), texts)
    read = {module.path: module.text for module in result.sources.modules()}
    found: dict[str, list[Finding]] = {}
    for finding in with_fixes(result):
        found.setdefault(os.path.abspath(finding.place.path), []).append(finding)
    findings = {path: tuple(items) for path, items in found.items()}
    return Report(snapshot, findings, {**read, **texts})


def _options(snapshot: Snapshot, options: Options) -> Options:
    """The project as a whole, and what is open in it but on the disk not yet of interest."""
    more = [
        path
        for path, document in snapshot.documents.items()
        if MARK in document.text and os.path.isfile(path) and _is_source(path, snapshot.root)
    ]
    return replace(options, paths=(snapshot.root, *more))


def _is_source(path: str, root: str) -> bool:
    """Whether a file is of the kind that a check of its project looks at."""
    folder = os.path.dirname(path)
    while len(folder) > len(root):
        name = os.path.basename(folder)
        if name in SKIPPED_FOLDERS or name.startswith(".") or is_runtime(folder):
            return False
        if os.path.exists(os.path.join(folder, "pyvenv.cfg")):
            return False
        folder = os.path.dirname(folder)
    return path.endswith(".py")
