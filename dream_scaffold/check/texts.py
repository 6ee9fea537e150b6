"""Texts of files: how they are coded, how their lines end, what a merge has left in them."""


def open_conflict(text: str) -> int | None:
    """The line where an unresolved conflict begins, if there is one."""
    lines = text.split("\n")
    opened = [number for number, line in enumerate(lines, 1) if line.startswith("<<<<<<< ")]
    return opened[0] if opened and any(line == "=======" for line in lines) else None


def with_newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def decode_declared(raw: bytes) -> str:
    """Decode source that declares an encoding other than UTF-8 in its first two lines."""
    from io import BytesIO
    from tokenize import detect_encoding

    try:
        encoding, _ = detect_encoding(BytesIO(raw).readline)
        return raw.decode(encoding)
    except (SyntaxError, ValueError, LookupError):
        raise ValueError("is not UTF-8") from None
