"""The whole check: options in, findings, text and an exit code out."""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from io import TextIOWrapper

from ..errors import DreamError
from .configurations import Size
from .facts import Fault, Finding, Match, Project
from .options import Options, resolve_options
from .reader import Reader
from .rules import RULES, rule_of
from .runner import choose_rules, find
from .source import Sources
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


def check(options: Options) -> Result:
    """Check a project. Raises `DreamError` where that cannot be done."""
    options = resolve_options(options)
    rules = choose_rules(RULES, options.select, options.ignore)
    sources = Sources(overlay=_standard_input(options))
    files = list(_files(options))
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
        Fault("DT000", Match(found.place, found.message)) for found in sources.broken.values()
    ]
    loose = [*broken, *outdated_runtimes(sources)]
    project = project.with_faults(loose)
    findings = find(project, rules, sources)
    if not options.verbose:
        findings = [finding for finding in findings if finding.code != "DT002"]
    return Result(findings=tuple(findings), project=project, sources=sources, options=options)


def run(options: Options) -> int:
    """Check a project and print what was found. The exit code: 0, 1, or 2 for no check at all."""
    from .report import render

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Names and paths may hold what the terminal cannot show.
            stream.reconfigure(errors="backslashreplace")
    try:
        result = check(options)
        text = render(result)
    except DreamError as error:
        print(f"error: {error.fact}\nhelp: {error.remedy}", file=sys.stderr)
        return 2
    if text:
        print(text)
    return result.exit_code


def explain(code: str | None) -> str:
    """The manual of one rule, or the list of all. Raises `DreamError` for no such rule."""
    from .report.manual import list_rules, manual

    if code is None:
        return list_rules(RULES)
    return manual(rule_of(code))


def _standard_input(options: Options) -> dict[str, str]:
    if options.stdin_filename is None:
        return {}
    text = sys.stdin.buffer.read().decode("utf-8", errors="replace")
    return {os.path.abspath(options.stdin_filename): text}


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
