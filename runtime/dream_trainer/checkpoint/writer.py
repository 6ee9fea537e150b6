"""DCP's writer, made to count what it writes and to publish a checkpoint only whole."""

import dataclasses
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint._fsspec_filesystem import FsspecWriter
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from .manifest import MANIFEST, UNFINISHED, Manifest, name_of, set_aside
from .store import Store


class Written(list[WriteResult]):
    """What a rank tells rank 0 after writing: DCP's results, and its files' sizes and sums."""

    files: dict[str, tuple[int, int]]


class Counted:
    """A file being written: how many bytes so far, and their CRC-32."""

    def __init__(self, file: Any) -> None:
        self.file = file
        self.size = self.crc = 0

    def write(self, data: Any) -> Any:
        self.crc = zlib.crc32(data, self.crc)
        self.size += memoryview(data).nbytes
        return self.file.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


class _Publishing:
    """Mixed into a writer of DCP. Rank 0 publishes when all ranks have written.

    An exception in here reaches every rank, by DCP; nothing has then been published.
    """

    store: Store
    manifest: Manifest
    read_back: bool
    failure: BaseException | None = None
    """Why this rank cannot write: raised where DCP tells the other ranks."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self.is_first = is_coordinator
        super().set_up_storage_writer(is_coordinator, *args, **kwargs)  # type: ignore[misc]

    def publish_as(self, store: Store, manifest: Manifest, read_back: bool) -> None:
        self.store, self.manifest, self.read_back = store, manifest, read_back
        self.files: dict[str, tuple[int, int]] = {}
        fs: Any = self.fs  # type: ignore[attr-defined]
        self.open = fs.create_stream
        fs.create_stream = self._counting_stream

    @contextmanager
    def _counting_stream(self, path: Any, mode: str) -> Iterator[Any]:
        with self.open(path, mode) as file:
            if "w" not in mode:
                yield file
                return
            counted = Counted(file)
            yield counted
        name = str(path).rpartition("/")[2].removesuffix(".tmp")
        self.files[name] = (counted.size, counted.crc)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        if self.failure is not None:
            raise self.failure
        if not self.is_first:
            return plan  # Made here, the folder might be the one that the first rank removes.
        # Nobody writes before all have planned: the others' files are not there yet.
        folder = working_name(self.store, self.manifest.step)
        if folder in self.store.folders():
            self.store.remove(folder)
        return super().prepare_local_plan(plan)  # type: ignore[misc,no-any-return]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        written = Written(super().write_data(plan, planner).wait())  # type: ignore[misc]
        written.files = self.files
        if self.read_back:
            self._compare(self.files)
        future: Future[list[WriteResult]] = Future()
        future.set_result(written)
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        super().finish(metadata, results)  # type: ignore[misc]
        files = dict(self.files)
        for written in results:
            files |= getattr(written, "files", {})
        folder = working_name(self.store, self.manifest.step)
        sizes = self.store.files(folder)
        for name, (size, _) in files.items():
            if sizes.get(name) != size:
                raise OSError(f"{name} has {sizes.get(name, 0):,} bytes of {size:,} written")
        tensors = {
            key: (str(item.properties.dtype).removeprefix("torch."), list(item.size))
            for key, item in metadata.state_dict_metadata.items()
            if isinstance(item, TensorStorageMetadata)
        }
        manifest = dataclasses.replace(self.manifest, files=files, tensors=tensors)
        self.store.write(f"{folder}/{MANIFEST}", manifest.as_json())
        name = name_of(self.manifest.step)
        if self.store.is_local:
            if name in self.store.folders():  # Half removed, or by a save that was given up.
                set_aside(self.store, name)
            self.store.rename(folder, name)

    def _compare(self, files: dict[str, tuple[int, int]]) -> None:
        folder = working_name(self.store, self.manifest.step)
        for name, (_, crc) in files.items():
            if self.store.checksum(f"{folder}/{name}") != crc:
                raise OSError(f"{name} reads back other than it was written")


class LocalWriter(_Publishing, FileSystemWriter):
    """Into a folder of this machine."""


class RemoteWriter(_Publishing, FsspecWriter):
    """To an fsspec URL."""


def working_name(store: Store, step: int) -> str:
    """The folder that is written to, until it is published."""
    return name_of(step) + (UNFINISHED if store.is_local else "")


def publishing_writer(
    store: Store, manifest: Manifest, read_back: bool
) -> LocalWriter | RemoteWriter:
    """What writes and publishes the checkpoint of `manifest`."""
    kind = LocalWriter if store.is_local else RemoteWriter
    writer = kind(store.url(working_name(store, manifest.step)))
    writer.publish_as(store, manifest, read_back)
    return writer
