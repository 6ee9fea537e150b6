"""Files of a project: text, syntax tree, and what an import statement means in them."""

import ast
import os
import stat
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from .facts import Place
from .texts import decode_declared, open_conflict, with_newlines

if TYPE_CHECKING:
    from .values.arguments import Change

LARGEST_FILE = 2_000_000
"""Bytes. What is larger is data, not source."""

MOST_STEPS = 2_000_000
"""Expressions that one check evaluates, each as often as it is met: some seconds of work."""

SKIPPED_FOLDERS = frozenset(
    {".dream", ".git", ".venv", "__pycache__", "build", "node_modules", "site-packages", "venv"}
)


@dataclass(eq=False)
class Module:
    """One parsed file, or a folder without `__init__.py` (then `tree` is empty)."""

    path: str
    """Absolute; of a package, the path of its `__init__.py` or its folder."""

    shown: str
    """The path as findings show it: relative to the working folder."""

    name: str
    text: str
    tree: ast.Module
    folder: str | None
    """Where submodules lie, if this is a package."""

    @cached_property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    def place(self, node: ast.AST) -> Place:
        """Where `node` stands."""
        line = getattr(node, "lineno", 1)
        end_line = getattr(node, "end_lineno", None) or line
        start = self._column(line, getattr(node, "col_offset", 0))
        end = self._column(end_line, getattr(node, "end_col_offset", None) or 0)
        return Place(self.shown, line, start, end_line, end)

    def name_place(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> Place:
        """Where the name of a class or function stands."""
        at = self.place(node)
        text = self.lines[at.line - 1]
        column = text.find(node.name, at.column - 1 + len("def ")) + 1
        return Place(self.shown, at.line, column, at.line, column + len(node.name))

    def _column(self, line: int, offset: int) -> int:
        # Syntax trees count bytes, people count characters.
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        if not text.isascii():
            offset = len(text.encode()[:offset].decode(errors="replace"))
        return offset + 1


@dataclass(frozen=True)
class Broken:
    """A file that cannot be parsed."""

    message: str
    place: Place
    is_source: bool = True
    """False: it is too large, and holds data."""


@dataclass
class Sources:
    """Every file that the check has read, each parsed once."""

    overlay: dict[str, str] = field(default_factory=dict)
    """Absolute path -> text that stands in for the file's."""

    broken: dict[str, Broken] = field(default_factory=dict)
    runtimes: set[str] = field(default_factory=set)
    """Folders of vendored runtimes that an import has led to."""

    changes: "tuple[Change, ...]" = ()
    """What the options of the training script change."""

    steps: int = MOST_STEPS
    """How much of the source may still be evaluated: a check ends, whatever it is given."""

    _modules: dict[str, Module | None] = field(default_factory=dict)
    _roots: dict[str, list[str]] = field(default_factory=dict)
    _resolved: dict[tuple[str, str, int], "Module | str"] = field(default_factory=dict)

    def load(self, path: str, name: str | None = None) -> Module | None:
        """The parsed file; None where it cannot be parsed (see `broken`)."""
        if path not in self._modules:
            self._modules[path] = self._parse(path, name or _module_name(path))
        return self._modules[path]

    def modules(self) -> Iterator[Module]:
        return (module for module in self._modules.values() if module is not None)

    def read(self, path: str) -> str:
        """The text of a file. Raises `ValueError` or `OSError` where it is no source."""
        if path in self.overlay:
            return with_newlines(self.overlay[path].removeprefix("\ufeff"))
        raw = read_bytes(path)
        if b"\0" in raw:
            raise ValueError("is not text")
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = decode_declared(raw)
        return with_newlines(text)

    def resolve(self, dotted: str, importer: Module, level: int = 0) -> "Module | str":
        """What `import dotted` in `importer` means: a file of the project, or a foreign name.

        `level` counts the dots of a relative import. The vendored runtime is foreign, and
        called `dream_trainer` wherever it lies.
        """
        folder = os.path.dirname(importer.path) if importer.tree.body else importer.path
        key = (folder, dotted, level)
        if key not in self._resolved:
            self._resolved[key] = self._resolve(dotted, folder, level)
        return self._resolved[key]

    def submodule(self, package: Module, name: str) -> "Module | str | None":
        """The module `name` of a package, if there is one."""
        return self._walk(package.folder, [name]) if package.folder else None

    def _resolve(self, dotted: str, folder: str, level: int) -> "Module | str":
        parts = dotted.split(".") if dotted else []
        if level:
            for _ in range(level - 1):
                parent = os.path.dirname(folder)
                if parent == folder:
                    break
                folder = parent
            roots = [folder]
        else:
            roots = self._roots_of(folder)
        for root in roots:
            found = self._walk(root, parts)
            if found is not None:
                return found
        return dotted or "." * level

    def _walk(self, folder: str, parts: list[str]) -> "Module | str | None":
        for index, part in enumerate(parts):
            inner = os.path.join(folder, part)
            if is_runtime(inner):
                self.runtimes.add(inner)
                return ".".join(["dream_trainer", *parts[index + 1 :]])
            is_package = os.path.isdir(inner)
            file = inner + ".py"
            if not (is_package and os.path.isfile(os.path.join(inner, "__init__.py"))) and (
                file in self.overlay or os.path.isfile(file)
            ):
                # A module has no submodules: what remains are names in it.
                return self.load(file, part) if index == len(parts) - 1 else None
            if not is_package:
                return None
            folder = inner
        if is_runtime(folder):
            self.runtimes.add(folder)
            return "dream_trainer"
        return self._package(folder)

    def _package(self, folder: str) -> Module | None:
        init = os.path.join(folder, "__init__.py")
        if os.path.isfile(init) or init in self.overlay:
            return self.load(init)
        if folder not in self._modules:
            empty = ast.Module(body=[], type_ignores=[])
            name = os.path.basename(folder)
            shown = os.path.relpath(folder)
            self._modules[folder] = Module(folder, shown, name, "", empty, folder)
        return self._modules[folder]

    def _roots_of(self, folder: str) -> list[str]:
        """Where absolute imports are looked up: from the folder up to the project's root."""
        if folder not in self._roots:
            self._roots[folder] = list(_roots(folder))
        return self._roots[folder]

    def _parse(self, path: str, name: str) -> Module | None:
        shown = os.path.relpath(path)
        start = Place(shown, 1, 1, 1, 1)
        try:
            text = self.read(path)
        except (OSError, ValueError, LookupError) as error:
            reason = str(error) if isinstance(error, ValueError) else "cannot be read"
            is_source = "is larger than" not in reason
            self.broken[path] = Broken(f"The file {reason}.", start, is_source)
            return None
        try:
            with warnings.catch_warnings():
                # What Python itself has to say of the source is not ours to print.
                warnings.simplefilter("ignore")
                tree = ast.parse(text)
        except SyntaxError as error:
            line, column = max(error.lineno or 1, 1), max(error.offset or 1, 1)
            message = (error.msg or "invalid syntax").capitalize()
            if (at := open_conflict(text)) is not None:
                line, column, message = at, 1, "A conflict of an update or a merge is still open"
            self.broken[path] = Broken(f"{message}.", Place(shown, line, column, line, column + 1))
            return None
        except (ValueError, RecursionError, MemoryError):
            self.broken[path] = Broken("The file is nested too deeply to be read.", start)
            return None
        is_package = os.path.basename(path) == "__init__.py"
        folder = os.path.dirname(path) if is_package else None
        return Module(path, shown, name, text, tree, folder)


def is_runtime(folder: str) -> bool:
    """Whether `folder` is a copy of the training runtime."""
    return os.path.isfile(os.path.join(folder, "contract.py")) and os.path.isdir(
        os.path.join(folder, "configs")
    )


def read_bytes(path: str) -> bytes:
    """The content of a file. Raises `ValueError` or `OSError` where it is no source."""
    # A pipe or a device might never end, or never begin.
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError("is not a regular file")
    with open(path, "rb") as file:
        raw = file.read(LARGEST_FILE + 1)
    if len(raw) > LARGEST_FILE:
        raise ValueError(f"is larger than {LARGEST_FILE:,} bytes")
    return raw


def python_files(folder: str) -> Iterator[str]:
    """Every source file of a project, in a stable order; links to folders are not followed."""
    pending = [folder]
    while pending:
        parent = pending.pop()
        entries = _entries(parent)
        is_copy = "contract.py" in entries and "configs" in entries
        if parent != folder and ("pyvenv.cfg" in entries or is_copy):
            continue
        inner = []
        for name in sorted(entries):
            if entries[name] == "file" and name.endswith(".py"):
                yield os.path.join(parent, name)
            elif entries[name] == "folder" and not _is_skipped(name):
                inner.append(os.path.join(parent, name))
        pending += reversed(inner)


def _is_skipped(name: str) -> bool:
    return name in SKIPPED_FOLDERS or name.startswith(".")


def _entries(folder: str) -> dict[str, str]:
    """Name -> "file", "folder" or "other" for what a folder holds; nothing if it is closed."""
    found = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                found[entry.name] = _kind(entry)
    except OSError:
        pass
    return found


def _kind(entry: "os.DirEntry[str]") -> str:
    try:
        if entry.is_dir(follow_symlinks=False):
            return "folder"
        return "file" if entry.is_file() else "other"
    except OSError:  # A link that leads to itself.
        return "other"


def project_root(folder: str) -> str | None:
    """The nearest folder upwards that holds a pyproject.toml."""
    while not os.path.isfile(os.path.join(folder, "pyproject.toml")):
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent
    return folder


def _roots(folder: str) -> Iterator[str]:
    top = project_root(folder)
    if top is None:
        here = os.getcwd()
        top = here if folder.startswith(os.path.join(here, "")) else folder
        while os.path.isfile(os.path.join(top, "__init__.py")):
            top = os.path.dirname(top)
    yield folder
    while folder != top:
        folder = os.path.dirname(folder)
        yield folder
    if os.path.isdir(source := os.path.join(top, "src")):
        yield source


def _module_name(path: str) -> str:
    folder, file = os.path.split(path)
    return os.path.basename(folder) if file == "__init__.py" else file.removesuffix(".py")
