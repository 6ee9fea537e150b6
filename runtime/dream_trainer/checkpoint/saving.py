"""Saving a trainer: at once, or behind its back from a copy in host memory."""

import dataclasses
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

from ..configs import CheckpointParameters
from ..world import World
from .agreement import first_failure
from .manifest import Manifest, checkpoints, superfluous
from .state import collect
from .store import Store
from .writer import LocalWriter, RemoteWriter, publishing_writer, working_name

if TYPE_CHECKING:
    from ..trainer import DreamTrainer

Writer = LocalWriter | RemoteWriter


@dataclasses.dataclass
class Save:
    """One save under way or done."""

    manifest: Manifest
    writer: Writer
    thread: threading.Thread | None = None
    error: BaseException | None = None


class Saver:
    """Writes checkpoints into `store`, one at a time. All ranks call it alike."""

    def __init__(
        self, world: World, store: Store, parameters: CheckpointParameters, behind: bool
    ) -> None:
        self.world, self.store, self.parameters = world, store, parameters
        self.behind = behind
        self.under_way: Save | None = None
        self.is_broken = False
        """Whether the ranks lost each other in a save: they then need another group."""

        self.pruning: threading.Thread | None = None
        """Removes old checkpoints, which can take long, beside training."""

        self.group = self._new_group()
        self.stager = self._new_stager()

    def save(self, trainer: "DreamTrainer", manifest: Manifest) -> Save | None:
        """Write a checkpoint; None where it has only begun. The one before it is finished first.

        A failure of the storage is told in the `Save`, one of the trainer's hooks is raised.
        """
        self._mend_group()
        state = collect(trainer)
        writer = publishing_writer(self.store, manifest, self.parameters.read_back)
        save = Save(manifest, writer)
        if not self.behind:
            self._write(state, save)
            return save
        staged: list[Any] = []
        stager = self.stager
        copy = _daemon(lambda: self._stage(stager, state, staged, writer))
        copy.join(self.parameters.save_timeout_seconds)
        if not staged:
            self.stager = self._new_stager()
            late = TimeoutError("the copy to host memory took too long")
            writer.failure = writer.failure or late
        save.thread = _daemon(lambda: self._write(staged[0] if staged else {}, save))
        self.under_way = save
        return None

    def wait(self, limit: float | None = None) -> Save | None:
        """The save that was under way, finished now; None where there was none."""
        save, self.under_way = self.under_way, None
        if save is None or save.thread is None:
            return None
        seconds = self.parameters.save_timeout_seconds if limit is None else limit
        save.thread.join(seconds)
        if save.thread.is_alive():
            self.is_broken = True
            self.stager = self._new_stager()  # The memory of the old one is still being written.
            save.error = TimeoutError(f"not done after {seconds} seconds")
        return save

    def is_done(self) -> bool:
        """Whether `wait` would not wait."""
        save = self.under_way
        return save is not None and save.thread is not None and not save.thread.is_alive()

    def close(self) -> None:
        self.join_pruning()
        if self.world.is_rank_zero:
            self._prune()  # One may have been left out while another was under way.
        self.stager.close()

    def _mend_group(self) -> None:
        """Where the ranks have lost each other in a save, give them another group."""
        if self.world.world_size == 1:
            return
        broken = torch.tensor(int(self.is_broken))
        dist.all_reduce(broken, dist.ReduceOp.MAX)
        if broken:
            self.group, self.is_broken = self._new_group(), False

    def _new_group(self) -> dist.ProcessGroup | None:
        """A group of all ranks for saves alone: they may run beside training, and time out."""
        if self.world.world_size == 1:
            return None
        timeout = timedelta(seconds=self.parameters.save_timeout_seconds)
        group: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=timeout)
        return group

    def _new_stager(self) -> DefaultStager:
        """What copies to host memory, into the same place each time."""
        is_cuda = self.world.device.type == "cuda"
        return DefaultStager(
            StagingOptions(
                use_pinned_memory=is_cuda,
                use_shared_memory=False,
                use_async_staging=False,
                use_non_blocking_copy=is_cuda,
            )
        )

    def _stage(
        self, stager: DefaultStager, state: dict[str, Any], staged: list[Any], writer: Writer
    ) -> None:
        try:
            staged.append(stager.stage(state))
        except BaseException as error:
            writer.failure = error

    def _write(self, state: dict[str, Any], save: Save) -> None:
        try:
            # Every file gets a checksum of its own: torch's, inside of the files, is not read.
            with without_crc32():
                dcp.save(
                    state,
                    storage_writer=save.writer,
                    # Already flat; and flattening would lose empty lists and dicts.
                    planner=DefaultSavePlanner(
                        flatten_state_dict=False, flatten_sharded_tensors=False
                    ),
                    process_group=self.group,
                )
            if self.world.is_rank_zero and not (self.pruning and self.pruning.is_alive()):
                self.pruning = _daemon(self._prune)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            save.error = error
            self.is_broken = not isinstance(error, CheckpointException)
            if self.world.is_rank_zero and not self.is_broken:
                self._clear(save)

    def _clear(self, save: Save) -> None:
        """Remove what a failed save has written: a full disk would stay full of it."""
        folder = working_name(self.store, save.manifest.step)
        try:
            if folder in self.store.folders():
                self.store.remove(folder)
        except OSError as error:
            print(f"warning: {folder} could not be removed: {error}", file=sys.stderr)

    def join_pruning(self, limit: float | None = None) -> None:
        if self.pruning is not None:
            self.pruning.join(limit)

    def _prune(self) -> None:
        """Remove what is not among the best. It is not worth ending a run that it fails."""
        parameters = self.parameters
        found = checkpoints(self.store)
        monitor, mode = parameters.monitor, parameters.resume_mode
        for checkpoint in superfluous(found, parameters.keep_top_k, monitor, mode):
            try:
                checkpoint.remove()
            except OSError as error:
                print(f"warning: {checkpoint.url} could not be removed: {error}", file=sys.stderr)


def reason(error: BaseException) -> str:
    """Why a save failed, in one line: of DCP's failures that of the first rank."""
    if isinstance(error, CheckpointException) and error.failures:
        rank, first = first_failure(error)
        return f"rank {rank}: {type(first).__name__}: {first}".splitlines()[0]
    if "Timed out waiting" in str(error):  # gloo's words, of a line of its source.
        return "TimeoutError: another rank was not done within save_timeout_seconds"
    return f"{type(error).__name__}: {error}".splitlines()[0]


@contextmanager
def without_crc32() -> Iterator[None]:
    """Let `torch.save` leave out its own checksums, which nothing would read."""
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        yield
    finally:
        torch.serialization.set_crc32_options(before)


def _daemon(work: Callable[[], None]) -> threading.Thread:
    """`work` in a thread that cannot keep the process alive."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
