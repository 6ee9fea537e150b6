"""What a run can show besides numbers, and how it becomes files."""

import csv
import struct
import wave
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ..configs import RunError


@dataclass(frozen=True)
class Image:
    """A picture: `pixels` of shape (height, width), (1 or 3, height, width), 0 to 1 or uint8."""

    pixels: Tensor
    caption: str = ""

    def bytes(self) -> Tensor:
        """uint8, shape (1 or 3, height, width), on the CPU. Raises `RunError` for others."""
        pixels = self.pixels.detach()
        pixels = pixels[None] if pixels.ndim == 2 else pixels
        if pixels.ndim != 3 or pixels.shape[0] not in (1, 3):
            raise RunError(
                f"An image of shape {tuple(self.pixels.shape)} cannot be shown. "
                "Give (height, width), (1, height, width) or (3, height, width)."
            )
        if pixels.dtype != torch.uint8:
            pixels = pixels.float().nan_to_num().clamp(0, 1).mul(255).round().to(torch.uint8)
        return pixels.cpu()


@dataclass(frozen=True)
class Audio:
    """A sound: `samples` of shape (length,) from -1 to 1, `rate` of them a second."""

    samples: Tensor
    rate: int
    caption: str = ""


@dataclass(frozen=True)
class Table:
    """Rows under the names of their columns."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


Media: TypeAlias = Image | Audio | Table | str


def as_media(value: Any, name: str) -> list[Media]:
    """One thing to show, or a list of them; a tensor is an image. Raises `RunError`."""
    if isinstance(value, (list, tuple)):
        return [item for part in value for item in as_media(part, name)]
    if isinstance(value, (Image, Audio, Table, str)):
        return [value]
    if isinstance(value, Tensor):
        return [Image(value)] if value.ndim <= 3 else [Image(part) for part in value]
    raise RunError(
        f"{name!r} is {type(value).__name__}, which cannot be shown. "
        "Give text, a tensor of pixels, or Image, Audio or Table of dream_trainer.loggers."
    )


def write(item: Media, path: Path) -> Path:
    """Write `item` to `path`, with the suffix that belongs to it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(item, Image):
        path = path.with_suffix(".png")
        path.write_bytes(as_png(item.bytes()))
    elif isinstance(item, Audio):
        path = path.with_suffix(".wav")
        samples = item.samples.detach().float().nan_to_num().clamp(-1, 1).mul(32_767)
        with wave.open(str(path), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(item.rate)
            file.writeframes(samples.flatten().to(torch.int16).cpu().numpy().tobytes())
    elif isinstance(item, Table):
        path = path.with_suffix(".csv")
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([item.columns, *item.rows])
    else:
        path = path.with_suffix(".txt")
        path.write_text(item)
    return path


def as_png(pixels: Tensor) -> bytes:
    """A PNG file of uint8 pixels, shape (1 or 3, height, width); see RFC 2083."""
    channels, height, width = pixels.shape
    rows = pixels.permute(1, 2, 0).reshape(height, -1)
    filtered = torch.cat([rows.new_zeros(height, 1), rows], dim=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    chunks = (
        (b"IHDR", header),
        (b"IDAT", zlib.compress(filtered.numpy().tobytes())),
        (b"IEND", b""),
    )
    parts = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)
