"""One editor's session: what it has open, what is checked for it, and what it has been told."""

import os
from collections.abc import Callable
from functools import partial

from lsprotocol.types import (
    CodeAction,
    CodeActionParams,
    InitializeParams,
    LogMessageParams,
    MessageType,
    PositionEncodingKind,
    PublishDiagnosticsParams,
)
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from ..options import Options
from ..source import project_root
from .actions import FIX_ALL, Offer, wants
from .checks import Checks
from .diagnostics import diagnostics, uri_of
from .documents import Documents
from .positions import CODECS
from .projects import Report, Snapshot, fix_all, report, root_of

NO_TRAINER = "No trainer found in "


class Session:
    """What is known of one editor. Everything here happens on the server's own thread."""

    def __init__(self, server: LanguageServer) -> None:
        self.server = server
        self.documents = Documents()
        self.options = Options()
        self.checks = Checks(self._check, self._publish, self.log_error)
        self.folders: list[str] = []
        self._versioned = False
        self._shown: dict[str, dict[str, str]] = {}
        """Root -> path -> address of the files that findings are shown in."""

        self._told: dict[str, str] = {}
        """Root -> why it could not be checked, as it was last said."""

    def begin(self, params: InitializeParams) -> None:
        """Take in what the editor can do and asks for."""
        encoding = self.server.workspace.position_encoding or PositionEncodingKind.Utf16
        self.documents.codec = CODECS[PositionEncodingKind(encoding)]
        given = params.initialization_options
        self.options = _options(given if isinstance(given, dict) else {})
        workspace = params.capabilities.workspace
        edits = workspace.workspace_edit if workspace is not None else None
        self._versioned = bool(edits is not None and edits.document_changes)
        uris = [each.uri for each in params.workspace_folders or ()]
        uris += [params.root_uri] if params.root_uri and not uris else []
        self.folders = [path for path in map(to_fs_path, uris) if path is not None]

    def touch(self, path: str | None, *, at_once: bool = False) -> None:
        """Check the project of a file whose text has changed."""
        if path is None or not path.endswith((".py", "pyproject.toml")):
            return
        root = self.root(path)
        if any(name.endswith(".py") for name in self.documents.below(root)):
            self.checks.request(root, *([0.0] if at_once else []))
        else:
            self.checks.forget(root)
            self._show(root, {})

    def touch_disk(self, path: str) -> None:
        """Check every project that a file on the disk may matter to."""
        for root in {self.root(path), *self._shown}:
            if path.startswith(os.path.join(root, "")):
                self.touch(os.path.join(root, "pyproject.toml"))

    def rearrange(self) -> None:
        """Check everything anew after projects or folders have come or gone."""
        open_files = self.documents.paths()
        roots = {self.root(path) for path in open_files}
        for root in [root for root in self._shown if root not in roots]:
            self.checks.forget(root)
            self._show(root, {})
        for path in open_files:
            self.touch(path)

    def root(self, path: str) -> str:
        return root_of(path, self.folders)

    async def actions(self, params: CodeActionParams, path: str) -> list[CodeAction]:
        """What can be done about the findings of a file."""
        root = self.root(path)
        current = await self.checks.current(root)
        if current is None or path not in current.texts:
            return []
        offer = Offer(current, path, self.documents.codec, self._versioned)
        only = params.context.only
        actions: list[CodeAction] = []
        if wants(only, "quickfix"):
            actions += offer.quick_fixes(params.range)
        if wants(only, FIX_ALL) and offer.has_safe_fix():
            text = await self.checks.aside(partial(fix_all, current.snapshot, self.options, path))
            everything = offer.replacement(text)
            actions += [] if everything is None else [everything]
        return actions

    def log(self, message: str, kind: MessageType = MessageType.Warning) -> None:
        """A line in the editor's log."""
        self.server.window_log_message(LogMessageParams(type=kind, message=message))

    def log_error(self, error: BaseException) -> None:
        """An error of the server itself: said, and survived."""
        import traceback

        self.log("".join(traceback.format_exception(error)), MessageType.Error)

    def _check(self, root: str) -> Callable[[], Report]:
        return partial(report, Snapshot(root, self.documents.below(root)), self.options)

    def _publish(self, root: str, found: Report) -> None:
        fact = "" if found.refusal is None else found.refusal.fact
        if found.refusal is not None and fact != self._told.get(root, ""):
            kind = MessageType.Log if fact.startswith(NO_TRAINER) else MessageType.Warning
            self.log(f"{root}: {fact} {found.refusal.remedy}", kind)
        self._told[root] = fact
        own = [path for path in found.findings if _is_within(path, root)]
        self._show(root, {path: uri_of(found, path) for path in own}, found)

    def _show(self, root: str, uris: dict[str, str], found: Report | None = None) -> None:
        """Show the findings of a project, and take back those of files without any now."""
        gone = {path: uri for path, uri in self._shown.get(root, {}).items() if path not in uris}
        self._shown[root] = uris
        if not uris and found is None:
            del self._shown[root]
        for path, uri in (uris | gone).items():
            document = self.documents.get(path)
            items = [] if found is None else diagnostics(found, path, self.documents.codec)
            version = None if document is None else document.version
            self.server.text_document_publish_diagnostics(
                PublishDiagnosticsParams(uri=uri, diagnostics=items, version=version)
            )


def _is_within(path: str, root: str) -> bool:
    """Whether a file belongs to a project, and not to one that lies within it."""
    return project_root(os.path.dirname(path)) in (None, root)


def _options(given: dict[str, object]) -> Options:
    """The `initializationOptions`: `select` and `ignore`, lists of codes."""
    chosen: dict[str, tuple[str, ...] | None] = {}
    for name in ("select", "ignore"):
        codes = given.get(name)
        is_list = isinstance(codes, list) and bool(codes)
        chosen[name] = tuple(map(str, codes)) if is_list and isinstance(codes, list) else None
    return Options(select=chosen["select"], ignore=chosen["ignore"])
