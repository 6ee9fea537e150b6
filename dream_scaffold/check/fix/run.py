"""Check, fix, check again, until nothing is left that can be fixed."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import unified_diff

from ...errors import DreamError
from ..engine import Result, check
from ..options import Options
from .edits import applied
from .files import Kept, read, write
from .proposals import with_fixes

MOST_PASSES = 20


@dataclass(frozen=True)
class Fixed:
    """What was, or would be, changed, and what a check finds afterwards."""

    result: Result
    before: dict[str, Kept]
    """Absolute path -> the file as it was; of standard input, what was given."""

    after: dict[str, str]
    count: int
    """Fixes carried out."""

    @property
    def changed(self) -> list[str]:
        return [path for path, text in self.after.items() if text != self.before[path].text]


def fix(options: Options, overlay: Mapping[str, str] | None = None) -> Fixed:
    """Carry out fixes on texts; nothing is written. Raises `DreamError` as `check` does."""
    before: dict[str, Kept] = {}
    after: dict[str, str] = dict(overlay or {})
    before |= {path: Kept(text, "utf-8", b"") for path, text in after.items()}
    count = 0
    result = check(options, after)
    for _ in range(MOST_PASSES):
        findings = with_fixes(result)
        paths = {edit.place.path for f in findings if f.fix is not None for edit in f.fix.edits}
        absolute = {path: os.path.abspath(path) for path in paths}
        for path in absolute.values():
            if path not in before:
                before[path] = read(path)
        texts = {shown: after.get(path, before[path].text) for shown, path in absolute.items()}
        changed, done = applied(texts, findings, options.unsafe_fixes)
        if not done:
            break
        count += done
        after |= {absolute[shown]: text for shown, text in changed.items()}
        result = check(options, after)
    return Fixed(result, before, after, count)


def write_all(fixed: Fixed) -> None:
    """Write what has changed: all files, or the ones before as they were.

    Raises `DreamError`.
    """
    written: list[str] = []
    try:
        for path in fixed.changed:
            write(path, fixed.before[path], fixed.after[path])
            written.append(path)
    except DreamError:
        for path in written:
            kept = fixed.before[path]
            raw = fixed.after[path].encode(kept.encoding)
            write(path, kept._replace(raw=raw), kept.text)
        raise


def differences(fixed: Fixed) -> Iterator[str]:
    """A unified diff, line by line."""
    for path in fixed.changed:
        shown = os.path.relpath(path)
        before = fixed.before[path].text.splitlines()
        after = fixed.after[path].splitlines()
        yield from unified_diff(before, after, f"a/{shown}", f"b/{shown}", lineterm="")
