"""Which files of a folder are worth checking: those that may define or launch a trainer."""

import os
import re
from collections.abc import Iterable, Iterator

from .source import python_files, read_bytes

MARK = b"dream_trainer"
"""Whoever uses the runtime names it, however it is imported."""

STAR = b"import *"
WORD = re.compile(rb"import \*|[\w\x80-\xff]+")
CLASS = re.compile(rb"^[ \t]*class[ \t]+([\w\x80-\xff]+)[ \t]*[\[(]", re.MULTILINE)
IMPORT = re.compile(
    rb"\bfrom[ \t]*+(?P<dots>\.*+)[ \t]*+(?P<module>[\w\x80-\xff][\w.\x80-\xff]*+)?[ \t]*+"
    rb"import\b[ \t]*+(?P<names>\([^()]*+\)|[^\n;]*+)|\bimport[ \t]++(?P<modules>[^\n;]*+)"
)
"""Nothing in it goes back over what it has read: a file may be one line of two megabytes."""

DEEPEST = 50
"""Packages within packages."""

COMMENT = re.compile(rb"#[^\n]*")
NAME = re.compile(r"[\w.]+")


def candidates(folder: str) -> list[str]:
    """Files that use the runtime, and files that use the classes of those, as far as names go."""
    files = list(python_files(folder))
    new = [path for path, raw in _contents(files) if MARK in raw]
    chosen = set(new)
    importers = _importers(files, chosen) if new else {}
    near: dict[str, frozenset[bytes]] = {}
    """Files that import a chosen one, and their words."""
    classes = {STAR}
    while new:
        reached = {path for module in new for path in importers.get(module, ())}
        for _, raw in _contents(new):
            classes.update(CLASS.findall(raw))
        for path, raw in _contents(sorted(reached - chosen - near.keys())):
            near[path] = frozenset(WORD.findall(raw))
        new = [path for path, words in near.items() if not words.isdisjoint(classes)]
        chosen.update(new)
        for path in new:
            del near[path]
    return [path for path in files if path in chosen]


def _contents(paths: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    for path in paths:
        try:
            yield path, read_bytes(path)
        except (OSError, ValueError):
            continue


def _importers(files: list[str], chosen: set[str]) -> dict[str, list[str]]:
    """File -> those that import it, and are not chosen already."""
    known = {_without_suffix(path): path for path in files}
    names = {part for stem in known for part in stem.split(os.sep)} | {""}
    found: dict[str, list[str]] = {}
    for path, raw in _contents(path for path in files if path not in chosen):
        for stem in _imported(path, raw, names):
            if stem in known:
                found.setdefault(known[stem], []).append(path)
    return found


def _imported(path: str, raw: bytes, names: set[str]) -> set[str]:
    """Where the modules that a file imports may lie; `names` are those that are worth a look."""
    roots = _above(os.path.dirname(path))
    everywhere = [*roots, *(f"{root}{os.sep}src" for root in roots if "src" in names)]
    stems: set[str] = set()
    for found in set(IMPORT.findall(raw)):
        dots, module, inner, modules = (os.fsdecode(COMMENT.sub(b"", part)) for part in found)
        level = len(dots)
        for dotted in [module] if level or module else NAME.findall(modules):
            parts = dotted.split(".", DEEPEST)[:DEEPEST] if dotted else []
            if parts and parts[0] not in names:
                continue
            ends = [f"{os.sep}{os.path.join(*parts[: i + 1])}" for i in range(len(parts))] or [""]
            ends += [f"{ends[-1]}{os.sep}{name}" for name in NAME.findall(inner) if name in names]
            for root in roots[level - 1 : level] if level else everywhere:
                stems.update(root + end for end in ends)
    return stems


def _above(folder: str) -> list[str]:
    """A folder and those that it lies in, up to the root."""
    above = [folder]
    while (parent := os.path.dirname(above[-1])) != above[-1]:
        above.append(parent)
    return above


def _without_suffix(path: str) -> str:
    """What a module is called by: its path, or that of its package."""
    return path.removesuffix(os.sep + "__init__.py").removesuffix(".py")
