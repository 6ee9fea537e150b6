"""One verdict a file: what an update does to it, and why."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import PurePosixPath
from typing import Literal

from .threeway import Labels, merge

Verdict = Literal["new", "updated", "merged", "conflict", "kept", "deleted", "renamed"]

LIKENESS = 0.6
"""The share of lines from which a file counts as another one renamed, as in git."""

RENAMED: dict[str, str] = {}
"""Template files that were renamed and changed beyond recognition: old path -> new path."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """What happens to one file. `before` and `after` are its bytes; None: it is not there."""

    path: str
    verdict: Verdict
    before: bytes | None
    after: bytes | None
    why: str
    conflicts: int = 0

    @property
    def writes(self) -> bool:
        return self.before != self.after


@dataclass(frozen=True, kw_only=True)
class Sides:
    """The three states of a project: path -> bytes."""

    base: Mapping[str, bytes]
    """What was generated, as far as it is known."""

    yours: Mapping[str, bytes]
    """What there is now, of every text file of the project."""

    new: Mapping[str, bytes]
    labels: Labels
    lost: frozenset[str] = frozenset()
    """Generated, but it is not known how."""

    linked: frozenset[str] = frozenset()
    """Paths of yours that are symbolic links: never written through."""

    tidy: Callable[[str, bytes], bytes | None] = lambda path, content: content
    """A file in the project's own format; None where it cannot be formatted."""


def plan(sides: Sides) -> list[Change]:
    """The verdict on every file that an update touches or deliberately leaves alone."""
    changes: list[Change] = []
    moved = _template_renames(sides)
    own = _own_renames(sides)
    for path in sorted({*sides.base, *sides.new, *sides.lost}):
        if path in moved.values() and path not in sides.yours:
            continue  # It is dealt with under its old name.
        if path in moved:
            changes += _moved(sides, path, moved[path])
        else:
            changes += _one(sides, path, own.get(path, path))
    return changes


def _one(sides: Sides, path: str, place: str) -> Iterator[Change]:
    """The verdict on a file that its owner may have renamed to `place`."""
    base, yours, new = sides.base.get(path), sides.yours.get(place), sides.new.get(path)
    if new is None:
        yield from _dropped(sides, path, place)
    elif yours is None and (base is not None or path in sides.lost):
        if base != new:
            yield _kept(place, None, "you deleted it; the template has changed it since")
    elif yours is None:
        yield Change(path=path, verdict="new", before=None, after=new, why="new in the template")
    elif place in sides.linked and yours != new and base != new:
        yield _beside(sides, place, yours, new, "it is a symbolic link")
    elif yours == new or base == new:
        return
    else:
        yield _combined(sides, place, base, yours, new)


def _dropped(sides: Sides, path: str, place: str) -> Iterator[Change]:
    """The template has the file no longer."""
    base, yours = sides.base.get(path), sides.yours.get(place)
    if yours is None:
        return
    if yours == base and place not in sides.linked:
        why = "no longer in the template, and you had not edited it"
        yield Change(path=place, verdict="deleted", before=yours, after=None, why=why)
    else:
        yield _kept(place, yours, "no longer in the template; you have edited it")


def _moved(sides: Sides, old: str, new: str) -> Iterator[Change]:
    """The template has renamed a file."""
    yours = sides.yours.get(old)
    if yours is None:
        yield _kept(new, None, f"you deleted {old}, which the template calls {new} now")
        return
    if new in sides.yours or old in sides.linked:
        yield _kept(old, yours, f"the template calls it {new} now, and you have such a file")
        yield from _one(sides, new, new)
        return
    merged = _combined(sides, new, sides.base[old], yours, sides.new[new])
    why = f"the template calls it {new} now"
    yield Change(path=old, verdict="renamed", before=yours, after=None, why=why)
    yield Change(
        path=new,
        verdict="conflict" if merged.conflicts else "renamed",
        before=None,
        after=merged.after,
        why=f"was {old}; {merged.why}",
        conflicts=merged.conflicts,
    )


def _combined(sides: Sides, path: str, base: bytes | None, yours: bytes, new: bytes) -> Change:
    """Your text and the new one, merged over their base."""
    if base == yours:
        why = "changed in the template, not by you"
        return Change(path=path, verdict="updated", before=yours, after=new, why=why)
    texts = [_decoded(content) for content in (base, yours, new)]
    old, mine, theirs = texts
    if mine is None or theirs is None or (old is None and base is not None):
        return _beside(sides, path, yours, new, "it is no text")
    crlf = "\r\n" in mine
    plain = [None if text is None else text.replace("\r\n", "\n") for text in texts]
    plain = _tidied(sides, path, plain)
    merged = merge(plain[0], plain[1] or "", plain[2] or "", sides.labels)
    text = merged.text.replace("\n", "\r\n") if crlf else merged.text
    after = text.encode()
    if merged.conflicts:
        count = f"{merged.conflicts} conflict" + "s" * (merged.conflicts > 1)
        unknown = "" if base is not None else "; what was generated is not known"
        why = f"{count} between your edits and the template's{unknown}"
        return Change(
            path=path,
            verdict="conflict",
            before=yours,
            after=after,
            why=why,
            conflicts=merged.conflicts,
        )
    if after == yours:
        return _kept(path, yours, "it has what the template changed already")
    why = "your edits and the template's, merged"
    return Change(path=path, verdict="merged", before=yours, after=after, why=why)


def _tidied(sides: Sides, path: str, texts: list[str | None]) -> list[str | None]:
    """All three in the project's own format, where yours is in it: then only words differ."""
    base, yours, new = texts
    if yours is None or sides.tidy(path, yours.encode()) != yours.encode():
        return texts
    tidy = [None if text is None else sides.tidy(path, text.encode()) for text in (base, new)]
    if tidy[1] is None or (tidy[0] is None and base is not None):
        return texts
    return [None if tidy[0] is None else tidy[0].decode(), yours, tidy[1].decode()]


def _beside(sides: Sides, path: str, yours: bytes, new: bytes, reason: str) -> Change:
    """What cannot be merged is written beside."""
    beside = f"{path}.from-template"
    why = f"{reason}, so the template's new version lies beside {path}"
    return Change(
        path=beside,
        verdict="conflict",
        before=sides.yours.get(beside),
        after=new,
        why=why,
        conflicts=1,
    )


def _kept(path: str, content: bytes | None, why: str) -> Change:
    return Change(path=path, verdict="kept", before=content, after=content, why=why)


def _template_renames(sides: Sides) -> dict[str, str]:
    """Files that the template has renamed, old path -> new path."""
    gone = [path for path in sides.base if path not in sides.new]
    added = [path for path in sides.new if path not in sides.base and path not in sides.lost]
    table = {old: new for old, new in RENAMED.items() if old in gone and new in added}
    return table | _likely(
        {path: sides.base[path] for path in gone if path not in table},
        {path: sides.new[path] for path in added if path not in table.values()},
    )


def _own_renames(sides: Sides) -> dict[str, str]:
    """Generated files that their owner has renamed and the template has changed."""
    gone = {
        path: sides.base[path]
        for path in sides.new
        if path in sides.base and path not in sides.yours and sides.base[path] != sides.new[path]
    }
    others = {
        path: content
        for path, content in sides.yours.items()
        if path not in sides.base and path not in sides.new
    }
    return _likely(gone, others)


def _likely(gone: Mapping[str, bytes], added: Mapping[str, bytes]) -> dict[str, str]:
    """Pairs of files that are alike enough to be one, the likest first; each once."""
    scored = []
    for old, content in gone.items():
        lines = content.splitlines()
        for new, other in added.items():
            if PurePosixPath(old).suffix == PurePosixPath(new).suffix and lines:
                matcher = SequenceMatcher(None, lines, other.splitlines(), autojunk=False)
                if matcher.real_quick_ratio() >= LIKENESS and matcher.quick_ratio() >= LIKENESS:
                    scored.append((matcher.ratio(), old, new))
    pairs: dict[str, str] = {}
    for score, old, new in sorted(scored, reverse=True):
        if score >= LIKENESS and old not in pairs and new not in pairs.values():
            pairs[old] = new
    return pairs


def _decoded(content: bytes | None) -> str | None:
    if content is None or b"\0" in content:
        return None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None
