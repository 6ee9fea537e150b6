"""Text as batches of bytes, the same stream however many ranks read it."""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from config import Config


def read_text(config: Config) -> Tensor:
    """All bytes to learn from, as one uint8 tensor.

    Raises `ValueError` for a file of `text_files` that cannot be read, or where there is
    no text at all.
    """
    text = bytearray()
    for path in config.text_files:
        try:
            text += Path(path).read_bytes()
        except OSError as error:
            raise ValueError(f"text_files names {path!r}: {error.strerror}.") from error
    if not config.text_files:
        text += python_manual()
    if not text:
        raise ValueError(f"text_files={config.text_files} hold no text.")
    return torch.frombuffer(text, dtype=torch.uint8)


def python_manual() -> bytes:
    """Python's reference manual, as `help()` shows it: about half a megabyte."""
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise ValueError(
            "This Python comes without its manual. Name a text of your own: "
            'text_files=("corpus.txt",).'
        ) from error
    return "\n".join(topics[name] for name in sorted(topics)).encode()


def split_text(config: Config) -> tuple[Tensor, Tensor]:
    """The text to train on, and the end of it to validate on."""
    text = read_text(config)
    held_out = int(len(text) * config.validation_share)
    return text[: len(text) - held_out], text[len(text) - held_out :]


class TextBatches:
    """Batches of adjoining windows of one text, split over the data-parallel ranks.

    Yields {"input": (batch, seq_len), "target": (batch, seq_len)} of int64, where target
    is input one byte on. Global batch i holds the same windows in the same order for any
    number of ranks that together read as many.

    With `shuffle` the order is a new one in every epoch. With `drop_last` windows that fill
    no global batch are left out; without, every window is read exactly once and the last
    batch is short. Raises `ValueError` where the text is too short for that.
    """

    global_position = True
    """The state counts the windows of all ranks: another number of them can go on."""

    def __init__(
        self,
        text: Tensor,
        config: Config,
        *,
        rank: int,
        ranks: int,
        shuffle: bool,
        drop_last: bool,
    ) -> None:
        self.rank, self.ranks = rank, ranks
        self.seed = config.seed
        self.shuffle = shuffle
        self.global_size = config.batch_size * ranks
        self.epoch = self.position = self.resume_at = 0
        # One row a window: its inputs and, one byte further, its targets.
        size = config.seq_len + 1
        self.windows = text.unfold(0, size, config.seq_len) if len(text) >= size else text[:0]
        least = self.global_size if drop_last else ranks
        if len(self.windows) < least:
            raise ValueError(
                f"{len(text)} bytes of text make {len(self.windows)} samples of "
                f"seq_len={config.seq_len}, but dp_size={ranks} needs at least {least}. "
                "Name more text_files, or lower batch_size or seq_len."
            )
        # Where no further batch begins: no full one, or none with a row for this rank.
        self.stop = len(self.windows) - (self.global_size - 1 if drop_last else rank)

    def __len__(self) -> int:
        """Batches of this rank until the epoch ends, from where it begins."""
        return len(range(self.resume_at, self.stop, self.global_size))

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        start, self.resume_at = self.resume_at, 0
        order = self.order()
        for position in range(start, self.stop, self.global_size):
            self.position = position + self.global_size
            rows = order[position : self.position].tensor_split(self.ranks)[self.rank]
            window = self.windows[rows].long()
            yield {"input": window[:, :-1], "target": window[:, 1:]}

    def order(self) -> Tensor:
        """The windows in the order of this epoch, the same on every rank."""
        if not self.shuffle:
            return torch.arange(len(self.windows))
        # A generator keeps 32 bits of its seed: both numbers have to share them.
        generator = torch.Generator().manual_seed((1_000_003 * self.seed + self.epoch) % 2**32)
        return torch.randperm(len(self.windows), generator=generator)

    def set_epoch(self, epoch: int) -> None:
        """Shuffle anew; the epoch that a checkpoint was made in goes on where it was."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.position = self.resume_at = 0

    def state_dict(self) -> dict[str, int]:
        """Where the run is, in windows of all ranks."""
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch = state["epoch"]
        self.position = self.resume_at = state["position"]
