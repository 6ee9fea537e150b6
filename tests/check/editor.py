"""An editor, as a language server sees one: JSON-RPC over the pipes of a subprocess."""

import json
import queue
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

PATIENCE = 40.0
"""Seconds until a server that says nothing counts as broken."""

Json = dict[str, Any]


class Editor:
    """Starts `dream lsp`, and ends it whatever happens."""

    def __init__(
        self, folder: Path, *, options: Json | None = None, encodings: Any = None
    ) -> None:
        self.folder = folder
        self.shown: dict[str, Json] = {}
        """Address -> the diagnostics last published for it."""

        self.log: list[str] = []
        self.requests: list[str] = []
        self.texts: dict[str, str] = {}
        self._versions: dict[str, int] = {}
        self._messages: queue.Queue[Json | None] = queue.Queue()
        self._number = 0
        self._options, self._encodings = options, encodings

    def __enter__(self) -> "Editor":
        command = [sys.executable, "-m", "dream_scaffold", "lsp"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=self.folder.parent)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self._begin()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _begin(self) -> None:
        capabilities: Json = {
            "workspace": {
                "workspaceEdit": {"documentChanges": True},
                "didChangeWatchedFiles": {"dynamicRegistration": True},
            },
        }
        if self._encodings is not None:
            capabilities["general"] = {"positionEncodings": self._encodings}
        uri = self.folder.as_uri()
        self.server = self.ask(
            "initialize",
            processId=None,
            rootUri=uri,
            workspaceFolders=[{"uri": uri, "name": "project"}],
            capabilities=capabilities,
            initializationOptions=self._options,
        )
        self.tell("initialized")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

    def uri(self, name: str) -> str:
        return (self.folder / name).as_uri()

    def open(self, name: str, text: str | None = None) -> None:
        uri = self.uri(name)
        with_text = (self.folder / name).read_text() if text is None else text
        self.texts[uri], self._versions[uri] = with_text, 1
        item = {"uri": uri, "languageId": "python", "version": 1, "text": with_text}
        self.tell("textDocument/didOpen", textDocument=item)

    def write(self, name: str, text: str) -> None:
        """Replace the whole text of an open file."""
        self.change(name, [{"text": text}])
        self.texts[self.uri(name)] = text

    def change(self, name: str, changes: list[Json]) -> None:
        uri = self.uri(name)
        self._versions[uri] += 1
        document = {"uri": uri, "version": self._versions[uri]}
        self.tell("textDocument/didChange", textDocument=document, contentChanges=changes)

    def close(self, name: str) -> None:
        self.tell("textDocument/didClose", textDocument={"uri": self.uri(name)})

    def diagnostics(self, name: str, version: int | None = None) -> list[Json]:
        """What is shown in a file, once it is about the version that is open, or another."""
        uri = self.uri(name)
        wanted = self._versions.get(uri) if version is None else version
        self.wait(lambda: uri in self.shown and self.shown[uri].get("version") == wanted)
        found: list[Json] = self.shown[uri]["diagnostics"]
        return found

    def codes(self, name: str) -> list[str]:
        return [each["code"] for each in self.diagnostics(name)]

    def actions(self, name: str, span: Json, only: list[str] | None = None) -> list[Json]:
        context: Json = {"diagnostics": []} if only is None else {"diagnostics": [], "only": only}
        document = {"uri": self.uri(name)}
        found: list[Json] = self.ask(
            "textDocument/codeAction", textDocument=document, range=span, context=context
        )
        return found

    def wait(self, until: Any) -> None:
        """Take in messages until something holds."""
        end = time.monotonic() + PATIENCE
        while not until():
            self._take(end)

    def ask(self, method: str, **params: Any) -> Any:
        """The result of a request."""
        self._number += 1
        number = self._number
        self._send({"id": number, "method": method, "params": params})
        end = time.monotonic() + PATIENCE
        while True:
            message = self._take(end)
            if message.get("id") == number and "method" not in message:
                if "error" in message:
                    raise RuntimeError(message["error"])
                return message["result"]

    def tell(self, method: str, **params: Any) -> None:
        self._send({"method": method, "params": params})

    def quit(self, *, politely: bool = True) -> int:
        """The exit code of the server."""
        if politely:
            self.ask("shutdown")
        self.tell("exit")
        return self.process.wait(PATIENCE)

    def _take(self, end: float) -> Json:
        message = self._messages.get(timeout=max(end - time.monotonic(), 0.01))
        if message is None:
            raise RuntimeError("The server has ended.")
        method, params = message.get("method"), message.get("params", {})
        if method == "textDocument/publishDiagnostics":
            self.shown[params["uri"]] = params
        elif method == "window/logMessage":
            self.log.append(params["message"])
        elif method is not None and "id" in message:
            self.requests.append(method)
            self._send({"id": message["id"], "result": None})
        return message

    def _send(self, message: Json) -> None:
        raw = json.dumps({"jsonrpc": "2.0", **message}).encode()
        stream = self.process.stdin
        if stream is None:
            raise RuntimeError("There is no pipe.")
        stream.write(b"Content-Length: %d\r\n\r\n%b" % (len(raw), raw))
        stream.flush()

    def _read(self) -> None:
        stream = self.process.stdout
        while stream is not None:
            length = 0
            while (line := stream.readline()) not in (b"\r\n", b""):
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            if not line:
                break
            self._messages.put(json.loads(stream.read(length)))
        self._messages.put(None)


def edited(text: str, edits: list[Json]) -> str:
    """A text after edits whose columns count UTF-16, all of them meant for the text as it was."""
    spans = []
    for edit in edits:
        start, end = (_offset(text, edit["range"][side]) for side in ("start", "end"))
        spans.append((start, end, edit["newText"]))
    for start, end, new in sorted(spans, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _offset(text: str, position: Json) -> int:
    lines = text.split("\n")
    before = sum(len(line) + 1 for line in lines[: position["line"]])
    raw = lines[position["line"]].encode("utf-16-le")[: position["character"] * 2]
    return before + len(raw.decode("utf-16-le"))
