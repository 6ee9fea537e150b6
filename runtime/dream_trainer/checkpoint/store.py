"""Where checkpoints lie: a folder of this machine or an fsspec URL."""

import os
import zlib
from pathlib import Path
from typing import Any

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader

CHUNK = 1 << 22
"""Bytes read at a time."""


class Store:
    """Files and folders below `root`, a path or a URL such as s3://bucket/runs."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = os.fspath(root).rstrip("/") or "/"
        self.fs, self.path = url_to_fs(self.root)
        self.is_local = isinstance(self.fs, LocalFileSystem)
        """Whether a folder can be renamed at once, and files be flushed to the disk."""

    def url(self, name: str = "") -> str:
        """`name` below the root, as messages and DCP write it."""
        root = self.path if self.is_local and "://" in self.root else self.root
        return f"{root}/{name}" if name else root

    def folders(self) -> list[str]:
        """The names of the folders directly below; empty where there is no such place."""
        return [name for name, entry in self._entries("").items() if entry["type"] == "directory"]

    def files(self, folder: str = "") -> dict[str, int]:
        """Name -> size in bytes of every file directly in `folder`."""
        entries = self._entries(folder)
        return {n: int(e["size"]) for n, e in entries.items() if e["type"] == "file"}

    def _entries(self, folder: str) -> dict[str, Any]:
        self.fs.invalidate_cache()  # Another rank or run may have written since.
        try:
            found = self.fs.ls(self._at(folder), detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        return {entry["name"].rstrip("/").rpartition("/")[2]: entry for entry in found}

    def read(self, name: str) -> bytes:
        return bytes(self.fs.cat_file(self._at(name)))

    def write(self, name: str, data: bytes) -> None:
        """Write a file whole; on this machine it is on the disk when this returns."""
        with self.fs.open(self._at(name), "wb") as file:
            file.write(data)
            if self.is_local:
                file.flush()
                os.fsync(file.fileno())

    def checksum(self, name: str) -> int:
        """The CRC-32 of a file."""
        crc = 0
        with self.fs.open(self._at(name), "rb") as file:
            while chunk := file.read(CHUNK):
                crc = zlib.crc32(chunk, crc)
        return crc

    def rename(self, folder: str, to: str) -> None:
        """Give a folder of this machine another name, at once and for good."""
        flush_folder(self._at(folder))
        os.rename(self._at(folder), self._at(to))
        flush_folder(self._at(""))

    def remove(self, folder: str, first: str | None = None) -> None:
        """Remove a folder, the file `first` before any other."""
        if first is not None and self.fs.exists(self._at(f"{folder}/{first}")):
            self.fs.rm_file(self._at(f"{folder}/{first}"))
        if self.fs.exists(self._at(folder)):  # An object store has no empty folders.
            self.fs.rm(self._at(folder), recursive=True)

    def writer(self, folder: str) -> FileSystemWriter:
        """DCP's writer into `folder`."""
        if self.is_local:
            return FileSystemWriter(self.url(folder))
        from torch.distributed.checkpoint._fsspec_filesystem import FsspecWriter

        return FsspecWriter(self.url(folder))

    def reader(self, folder: str) -> FileSystemReader:
        """DCP's reader of `folder`."""
        return (FileSystemReader if self.is_local else FsspecReader)(self.url(folder))

    def _at(self, name: str) -> str:
        return f"{self.path}/{name}" if name else self.path


def flush_folder(path: str | Path) -> None:
    """Put on the disk which files a folder holds."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
