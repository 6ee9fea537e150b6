"""What shall become of a project: edits of texts, checked and formatted before one is written."""

import os
from collections.abc import Iterable
from pathlib import Path

from ...check.engine import Result, check
from ...check.facts import Edit
from ...check.fix.edits import edited, newline_of
from ...check.fix.files import Kept, read
from ...check.options import Options
from ...check.source import Module, Sources
from ...errors import DreamError
from ..place import uninterrupted
from ..snapshot import FOLDER
from ..update.journal import PLAN, Write, apply, finish
from .tidy import tidied


class Draft:
    """The files of a project, as they are and as they shall be. Paths are absolute."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.before: dict[str, Kept] = {}
        self.after: dict[str, str] = {}
        self.new: dict[str, str] = {}

    def is_there(self, path: str) -> bool:
        return path in self.new or os.path.lexists(path)

    def module(self, path: str) -> Module:
        """A file as it shall be, parsed. Raises `DreamError` where it is no Python."""
        sources = Sources(overlay=self.overlay)
        self._read(path)
        module = sources.load(path)
        if module is None:
            broken = sources.broken[path]
            raise DreamError(
                f"{broken.place} cannot be read: {broken.message}",
                "Mend it, and run the command again.",
            )
        return module

    def edit(self, edits: Iterable[Edit]) -> None:
        """Carry out edits on the texts as they shall be. Raises `DreamError`."""
        known = list(edits)
        paths = {edit.place.path: os.path.abspath(edit.place.path) for edit in known}
        changed = edited({shown: self._read(path) for shown, path in paths.items()}, known)
        if changed is None:
            shown = ", ".join(paths)
            fact = f"{shown} has a form in which this cannot be written."
            raise DreamError(fact, "Write it by hand; nothing was changed.")
        self.after |= {paths[shown]: text for shown, text in changed.items()}

    def add(self, name: str, text: str) -> None:
        """A file that there is none of yet."""
        self.new[os.path.join(self.project, name)] = text

    def check(self) -> Result:
        """The project as it shall be. Raises `DreamError` where no trainer is in it."""
        return check(Options(paths=(os.fspath(self.project),)), self.overlay)

    @property
    def overlay(self) -> dict[str, str]:
        return dict(self.after)

    def _read(self, path: str) -> str:
        if path not in self.before:
            self.before[path] = read(path)
            self.after[path] = self.before[path].text
        return self.after[path]

    def writes(self) -> list[Write]:
        """Every file that changes, in the project's own format where it is in it now.

        New files end their lines as the others do.
        """
        own = [Path(path).stem for path in self.new if path.endswith(".py")]
        found = []
        for path, text in self.after.items():
            kept = self.before[path]
            if text != kept.text:
                name = self._inside(path)
                try:
                    raw = text.encode(kept.encoding)
                except UnicodeEncodeError:
                    fact = f"{name} is coded as {kept.encoding}, which lacks a character."
                    raise DreamError(fact, "Store it as UTF-8.") from None
                found.append(Write(name, kept.raw, tidied(self.project, name, kept.raw, raw, own)))
        newline = next((newline_of(kept.text) for kept in self.before.values()), "\n")
        for path, text in self.new.items():
            name = self._inside(path)
            raw = text.replace("\n", newline).encode()
            raw = tidied(self.project, name, None, raw, own)
            found.append(Write(name, None, raw))
        return sorted(found, key=lambda write: write.path)

    def _inside(self, path: str) -> str:
        """The name of a file in the project; of a link, that of what it leads to."""
        top = os.path.realpath(self.project)
        name = os.path.relpath(os.path.realpath(path), top)
        if name.partition(os.sep)[0] == os.pardir:
            shown = os.path.relpath(path, self.project)
            fact = f"{shown} leads out of the project, to {os.path.realpath(path)}."
            raise DreamError(fact, "Edit that file by hand, or put a copy into the project.")
        return Path(name).as_posix()


def resume(project: Path) -> None:
    """Carry on what a killed command has begun to write; clear away what it has prepared."""
    with uninterrupted():
        finish(project)


def carry_out(project: Path, writes: list[Write]) -> None:
    """Write all of it or nothing. Raises `DreamError`."""
    try:
        with uninterrupted():
            apply(project, writes)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        committed = (project / FOLDER / PLAN).is_file()
        remedy = "Mend that and run it again: it goes on where it stopped."
        raise DreamError(
            f"The project could not be written: {error.strerror}{where}.",
            remedy if committed else "Nothing was changed.",
        ) from error
