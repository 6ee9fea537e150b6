"""Lines and columns of the check, which count characters from 1, as an editor counts them."""

from dataclasses import dataclass
from functools import cached_property

from lsprotocol.types import Position, PositionEncodingKind, Range

from ..facts import Place
from ..fix.edits import ENDING, line_starts

CODECS = {
    PositionEncodingKind.Utf8: "utf-8",
    PositionEncodingKind.Utf16: "utf-16-le",
    PositionEncodingKind.Utf32: "utf-32-le",
}
UNIT = {"utf-8": 1, "utf-16-le": 2, "utf-32-le": 4}


@dataclass(frozen=True)
class Ruler:
    """Measures one text in the units of the editor."""

    text: str
    codec: str
    """Of `CODECS`."""

    @cached_property
    def _starts(self) -> list[int]:
        """Where each line begins; a byte order mark belongs to the first."""
        return [0, *line_starts(self.text)[1:]]

    @cached_property
    def _ends(self) -> list[int]:
        """Where each line ends, its line ending left out."""
        return [*(found.start() for found in ENDING.finditer(self.text)), len(self.text)]

    def range(self, place: Place) -> Range:
        """Where a place is."""
        start = self.position(place.line, place.column)
        end = self.position(place.end_line, place.end_column)
        return Range(start, end)

    def position(self, line: int, column: int) -> Position:
        """A line and column of the check; what lies outside is moved to the nearest inside."""
        if line < 1:
            return Position(0, 0)
        if line > len(self._starts):
            return self.at(len(self.text))
        start, end = self._starts[line - 1], self._ends[line - 1]
        marked = int(line == 1 and self.text.startswith("\ufeff"))
        return self._position(line, min(max(start + marked + column - 1, start), end))

    def at(self, offset: int) -> Position:
        """Where the character of this number is."""
        from bisect import bisect_right

        return self._position(bisect_right(self._starts, offset), offset)

    def offset(self, position: Position) -> int:
        """The number of the character at a position; past the end of a line is its end."""
        if position.line >= len(self._starts):
            return len(self.text)
        start, end = self._starts[position.line], self._ends[position.line]
        line = self.text[start:end]
        if line.isascii():
            return start + min(position.character, len(line))
        raw = line.encode(self.codec, "surrogatepass")[: position.character * UNIT[self.codec]]
        return start + len(raw.decode(self.codec, "ignore"))

    def column(self, position: Position) -> int:
        """The column of the check at a position."""
        marked = int(position.line == 0 and self.text.startswith("\ufeff"))
        starts = self._starts
        start = starts[position.line] if position.line < len(starts) else len(self.text)
        return self.offset(position) - start - marked + 1

    def _position(self, line: int, offset: int) -> Position:
        before = self.text[self._starts[line - 1] : offset]
        size = len(before.encode(self.codec, "surrogatepass")) // UNIT[self.codec]
        return Position(line - 1, len(before) if before.isascii() else size)
