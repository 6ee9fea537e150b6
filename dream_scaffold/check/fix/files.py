"""Files as they are, byte for byte: read for editing, and written whole."""

import os
import tempfile
from io import BytesIO
from typing import NamedTuple

from ...errors import DreamError


class Kept(NamedTuple):
    """The text of a file, its line endings and byte order mark included, and how it is coded."""

    text: str
    encoding: str
    raw: bytes


def read(path: str) -> Kept:
    """Raises `DreamError` where a file cannot be read or is no text."""
    from tokenize import detect_encoding

    try:
        with open(path, "rb") as file:
            raw = file.read()
        encoding, _ = detect_encoding(BytesIO(raw).readline)
        coding = "utf-8" if encoding == "utf-8-sig" else encoding
        return Kept(raw.decode(coding), coding, raw)
    except (OSError, SyntaxError, ValueError, LookupError) as error:
        shown = os.path.relpath(path)
        raise DreamError(f"{shown} cannot be read for editing: {error}.", "Mend that.") from None


def write(path: str, kept: Kept, text: str) -> None:
    """Put `text` in the place of what was read. Its mode stays, a link stays a link.

    Raises `DreamError`, with nothing written, where the file has changed meanwhile, where its
    encoding lacks a character, or where the file system refuses.
    """
    shown = os.path.relpath(path)
    target = os.path.realpath(path)
    try:
        raw = text.encode(kept.encoding)
        with open(target, "rb") as file:
            if file.read() != kept.raw:
                raise DreamError(f"{shown} has changed meanwhile.", "Run the check again.")
        number, beside = tempfile.mkstemp(dir=os.path.dirname(target), prefix=".dream-fix-")
        try:
            with os.fdopen(number, "wb") as file:
                file.write(raw)
            os.chmod(beside, os.stat(target).st_mode & 0o7777)
            os.replace(beside, target)
        except BaseException:
            os.unlink(beside)
            raise
    except (OSError, UnicodeEncodeError) as error:
        raise DreamError(f"{shown} could not be written: {error}.", "Mend that.") from error
