"""The language server: what an editor says, and who in the session hears it."""

import gc
import threading
from collections.abc import Iterator
from typing import Any

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.protocol.language_server import LanguageServerProtocol, lsp_method

from ... import __version__
from .actions import FIX_ALL
from .documents import path_of
from .hover import hover
from .session import Session

STACK = 64 * 2**20
"""Bytes for the thread of the checks: source nests deeply."""

WATCHED = ("**/*.py", "**/pyproject.toml")


class Protocol(LanguageServerProtocol):
    """The protocol without pygls' own copy of the texts.

    It ends lines at form feeds, too, and moves the positions of a change in place to where
    such a line ends, before anybody else sees them.
    """

    @lsp_method(types.TEXT_DOCUMENT_DID_CHANGE)
    def lsp_text_document__did_change(
        self, params: types.DidChangeTextDocumentParams
    ) -> Iterator[Any]:
        """Hand the change on as it came."""
        yield self.fm.features[types.TEXT_DOCUMENT_DID_CHANGE], (params,), None


class Server(LanguageServer):
    """A language server that logs what goes wrong and goes on."""

    def __init__(self) -> None:
        super().__init__("dream", __version__, protocol_cls=Protocol)
        self.session = Session(self)

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Log an error that no request is answered with."""
        self.session.log_error(error)


def serve(address: tuple[str, int] | None = None) -> int:
    """Serve one editor, over standard input and output or at an address. The exit code.

    An editor that leaves without a `shutdown` request makes it 1.
    """
    gc.enable()
    threading.stack_size(STACK)
    server = Server()
    _documents(server)
    _requests(server)
    if address is None:
        server.start_io()
    else:
        server.start_tcp(*address)
    server.session.checks.close()
    return int(not server.protocol._shutdown)


def _documents(server: Server) -> None:
    """What the editor tells without waiting for an answer."""
    session = server.session

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def _open(params: types.DidOpenTextDocumentParams) -> None:
        item = params.text_document
        session.touch(session.documents.open(item.uri, item.version, item.text), at_once=True)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def _change(params: types.DidChangeTextDocumentParams) -> None:
        item = params.text_document
        session.touch(session.documents.change(item.uri, item.version, params.content_changes))

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def _save(params: types.DidSaveTextDocumentParams) -> None:
        session.touch(path_of(params.text_document.uri), at_once=True)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def _close(params: types.DidCloseTextDocumentParams) -> None:
        session.touch(session.documents.close(params.text_document.uri), at_once=True)

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def _watched(params: types.DidChangeWatchedFilesParams) -> None:
        paths = {path_of(change.uri) for change in params.changes}
        if any(path is not None and path.endswith("pyproject.toml") for path in paths):
            session.rearrange()
        for path in paths:
            if path is not None:
                session.touch_disk(path)

    @server.feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    def _folders(params: types.DidChangeWorkspaceFoldersParams) -> None:
        gone = {path_of(folder.uri) for folder in params.event.removed}
        new = [path_of(folder.uri) for folder in params.event.added]
        session.folders = [path for path in session.folders if path not in gone]
        session.folders += [path for path in new if path is not None]
        session.rearrange()


def _requests(server: Server) -> None:
    """How a session begins, and what the editor asks."""
    session = server.session

    @server.feature(types.INITIALIZE)
    def _initialize(params: types.InitializeParams) -> None:
        session.begin(params)

    @server.feature(types.INITIALIZED)
    async def _initialized(params: types.InitializedParams) -> None:
        workspace = server.client_capabilities.workspace
        watching = workspace.did_change_watched_files if workspace is not None else None
        if watching is None or not watching.dynamic_registration:
            return
        watchers = [types.FileSystemWatcher(glob_pattern=pattern) for pattern in WATCHED]
        options = types.DidChangeWatchedFilesRegistrationOptions(watchers=watchers)
        method = types.WORKSPACE_DID_CHANGE_WATCHED_FILES
        registration = types.Registration("dream-files", method, options)
        await server.client_register_capability_async(types.RegistrationParams([registration]))

    @server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION,
        types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix, FIX_ALL]),
    )
    async def _actions(params: types.CodeActionParams) -> list[types.CodeAction]:
        path = path_of(params.text_document.uri)
        return [] if path is None else await session.actions(params, path)

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    async def _hover(params: types.HoverParams) -> types.Hover | None:
        path = path_of(params.text_document.uri)
        if path is None:
            return None
        report = await session.checks.current(session.root(path))
        document = session.documents.get(path)
        codec = session.documents.codec
        return None if document is None else hover(report, path, document, params.position, codec)
