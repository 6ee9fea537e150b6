"""The whole check: options in, findings, text and an exit code out."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatch

from ..errors import DreamError
from .configurations import Size
from .facts import Fault, Finding, Match, Project
from .options import Options, resolve_options
from .reader import Reader
from .rules import RULES
from .runner import choose_rules, find
from .source import Sources
from .values.arguments import read_arguments
from .vendored import outdated_runtimes


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a check found."""

    findings: tuple[Finding, ...]
    project: Project
    sources: Sources
    options: Options

    @property
    def exit_code(self) -> int:
        """0: nothing wrong. 1: an error, or under `strict` a warning."""
        severe = ("error", "warning") if self.options.strict else ("error",)
        fails = any(finding.severity in severe for finding in self.findings)
        return int(fails and not self.options.exit_zero)


def check(options: Options, overlay: Mapping[str, str] | None = None) -> Result:
    """Check a project. Raises `DreamError` where that cannot be done.

    `overlay`: absolute path -> text that stands in for the file's.
    """
    options = resolve_options(options)
    rules = choose_rules(RULES, options.select, options.ignore)
    sources = Sources(overlay=dict(overlay or {}))
    if options.arguments:
        config, sources.changes = read_arguments(options.arguments)
        options = replace(options, config=config or options.config)
    files = [path for path in _files(options) if not _matches(path, options.exclude, options)]
    size = Size(options.processes, options.nproc_per_node) if options.processes else None
    reader = Reader(sources, size, options.config)
    project = reader.read(files)
    _require_trainer(project, reader, sources, files)
    if options.config is not None and options.config not in reader.names:
        names = ", ".join(dict.fromkeys(reader.names)) or "none"
        raise DreamError(
            f"No configuration is called {options.config}.", f"Those found are: {names}."
        )
    broken = [
        Fault("DT000", Match(found.place, found.message))
        for path, found in sources.broken.items()
        # What is merely imported may well be a table of some megabytes.
        if found.is_source or path in files
    ]
    loose = [*broken, *outdated_runtimes(sources)]
    project = project.with_faults(loose)
    findings = find(project, rules, sources, RULES)
    findings = [finding for finding in findings if not _is_silent(finding, options)]
    return Result(findings=tuple(findings), project=project, sources=sources, options=options)


def _is_silent(finding: Finding, options: Options) -> bool:
    """Whether a setting silences a finding."""
    if finding.code == "DT002" and not options.verbose:
        return True
    path = os.path.abspath(finding.place.path)
    return any(
        finding.code.startswith(tuple(codes)) and _matches(path, (pattern,), options)
        for pattern, codes in options.per_file_ignores.items()
    )


def _matches(path: str, patterns: Iterable[str], options: Options) -> bool:
    """Whether a path, from the project's root, fits one of `patterns`, or lies below one."""
    shown = os.path.relpath(path, options.root or ".").replace(os.sep, "/")
    return any(
        fnmatch(shown, pattern) or fnmatch(shown, f"{pattern.rstrip('/')}/*")
        for pattern in patterns
    )


def _files(options: Options) -> Iterator[str]:
    """The files to check: those named, and in folders those that may hold a trainer."""
    if options.stdin_filename is not None:
        yield os.path.abspath(options.stdin_filename)
        return
    seen: set[str] = set()
    for path in options.paths or (".",):
        absolute = os.path.abspath(path)
        if os.path.isdir(absolute):
            from .candidates import candidates

            found = candidates(absolute)
        elif os.path.isfile(absolute):
            found = [absolute]
        else:
            state = "is neither a file nor a folder" if os.path.exists(path) else "does not exist"
            raise DreamError(f"{path} {state}.", "Give a file or a folder.")
        yield from (file for file in found if file not in seen)
        seen.update(found)


def _require_trainer(project: Project, reader: Reader, sources: Sources, files: list[str]) -> None:
    """Raise `DreamError` where there is nothing to check, and no broken file to blame."""
    if project.trainers or reader.found_trainer or sources.broken:
        return
    where = ", ".join(os.path.relpath(file) for file in files[:3]) or "this folder"
    raise DreamError(
        f"No trainer found in {where}.",
        "Name the file with the class that derives from DreamTrainer.",
    )
