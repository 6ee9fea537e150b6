"""The texts that are open in the editor, and how they change."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from lsprotocol.types import (
    TextDocumentContentChangeEvent,
    TextDocumentContentChangePartial,
)
from pygls.uris import to_fs_path

from .positions import Ruler


@dataclass(frozen=True)
class Document:
    """One open text."""

    uri: str
    """As the editor wrote it."""

    version: int
    text: str


@dataclass
class Documents:
    """Every open file, by its absolute path. What is no file is left alone."""

    codec: str = "utf-16-le"
    """What the columns of the editor count."""

    _open: dict[str, Document] = field(default_factory=dict)

    def open(self, uri: str, version: int, text: str) -> str | None:
        """Take over a text; its path, or None where it is no file."""
        path = path_of(uri)
        if path is not None:
            self._open[path] = Document(uri, version, text)
        return path

    def change(
        self, uri: str, version: int, changes: Iterable[TextDocumentContentChangeEvent]
    ) -> str | None:
        """Carry out changes, each on what the one before left; the path of the file."""
        path = path_of(uri)
        known = None if path is None else self._open.get(path)
        if path is None or known is None:
            return None
        text = known.text
        for change in changes:
            if isinstance(change, TextDocumentContentChangePartial):
                ruler = Ruler(text, self.codec)
                start, end = ruler.offset(change.range.start), ruler.offset(change.range.end)
                text = text[:start] + change.text + text[end:]
            else:
                text = change.text
        self._open[path] = Document(known.uri, version, text)
        return path

    def close(self, uri: str) -> str | None:
        """Forget a text; its path, or None where it was not known."""
        path = path_of(uri)
        if path is None or path not in self._open:
            return None
        del self._open[path]
        return path

    def get(self, path: str) -> Document | None:
        return self._open.get(path)

    def paths(self) -> list[str]:
        """Every open file."""
        return list(self._open)

    def below(self, folder: str) -> dict[str, Document]:
        """The open files of a folder and its subfolders."""
        start = os.path.join(folder, "")
        return {path: found for path, found in self._open.items() if path.startswith(start)}


def path_of(uri: str) -> str | None:
    """The file that an address means; None for what is none, such as an unnamed text."""
    path = to_fs_path(uri) if uri.startswith("file:") else None
    return None if path is None else os.path.abspath(path)
