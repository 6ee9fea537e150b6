"""`dream new --template`: a project from a template of the user's own, rendered by copier."""

import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..errors import DreamError
from .git import first_commit
from .place import check_target, clear_up, put, refused_by_the_system, staged
from .render import RUNTIME, copy_runtime
from .tree import draw_tree
from .verify import check_project

URL = re.compile(r"^(\w[\w+.-]*://|git@|gh:|gl:)|\.git$")
SETTINGS = ("copier.yml", "copier.yaml")


@dataclass(frozen=True, kw_only=True)
class Template:
    """A template, and how it is to be rendered."""

    source: str
    """A folder, or a URL that git understands."""

    data: Mapping[str, Any]
    """Answers to its questions."""

    asks: bool
    """Whether its other questions are asked; if not, their defaults count."""

    trusted: bool
    """Whether it may run code: tasks, and extensions of jinja."""


@dataclass(frozen=True, kw_only=True)
class Made:
    """A project that was made from a template, or, where `git` is empty, would be."""

    folder: Path
    source: str
    tree: str
    files: list[str]
    git: str
    check: str
    replaced: list[str]
    has_runtime: bool
    """Whether the training runtime was put in, since the template brought none."""


def read_template(
    source: str,
    answers: Mapping[str, Any],
    assigned: Sequence[str],
    *,
    defaults: bool,
    trust: bool,
) -> Template:
    """Raises `DreamError` where there is no template, or an answer without a name."""
    path = Path(source)
    if path.is_dir():
        if not any((path / name).is_file() for name in SETTINGS):
            fact = f"{source} is no template: there is no {SETTINGS[0]} in it."
            raise DreamError(fact, "Name the folder that has one.")
        source = str(path.resolve())
    elif not URL.search(source):
        raise DreamError(
            f"There is no folder {source}.", "Name a folder, or the URL of a repository."
        )
    if source.startswith("file://"):
        source = f"git+{source}"
    data = dict(answers)
    for text in assigned:
        name, equals, value = text.partition("=")
        if not equals:
            raise DreamError(f"--data {text} has no value.", "Write --data NAME=VALUE.")
        data[name] = value
    asks = sys.stdin.isatty() and not defaults
    return Template(source=source, data=data, asks=asks, trusted=trust)


def create_from(template: Template, target: Path, *, force: bool, git: bool) -> Made:
    """Make the project; raises `DreamError`, with nothing written, where that cannot be."""
    clear_up(target)
    check_target(target, force=force)
    template = _agreed(template)
    with refused_by_the_system(target), staged(target) as stage:
        project = stage / target.name
        project.mkdir()
        has_runtime = _render(template, project)
        commit = first_commit(project, target) if git else "No git repository was made."
        tree, files = draw_tree(project), _files(project)
        replaced = put(project, target)
    return Made(
        folder=target,
        source=template.source,
        tree=tree,
        files=files,
        git=commit,
        check=check_project(target) if _uses_runtime(target) else "",
        replaced=replaced,
        has_runtime=has_runtime,
    )


def preview_from(template: Template, target: Path) -> Made:
    """What `create_from` would make; tasks of the template are not run for it."""
    with TemporaryDirectory(prefix="dream-new-") as folder:
        project = Path(folder) / target.name
        project.mkdir()
        has_runtime = _render(template, project, skip_tasks=True)
        files = _files(project)
        return Made(
            folder=target,
            source=template.source,
            tree=draw_tree(project),
            files=files,
            git="",
            check="",
            replaced=[
                name
                for name in files
                if (target / name).is_file()
                and (target / name).read_bytes() != (project / name).read_bytes()
            ],
            has_runtime=has_runtime,
        )


def _render(template: Template, project: Path, *, skip_tasks: bool = False) -> bool:
    """Render into an empty folder; returns whether the runtime was put in."""
    with _copier_errors(template):
        from copier import run_copy

        with _told_on_stderr():
            run_copy(
                template.source,
                project,
                dict(template.data),
                defaults=not template.asks,
                unsafe=template.trusted,
                skip_tasks=skip_tasks,
                overwrite=True,
                quiet=True,
            )
    lacks = _uses_runtime(project) and not (project / RUNTIME).exists()
    if lacks:
        copy_runtime(project / RUNTIME)
    return lacks


def _uses_runtime(project: Path) -> bool:
    return any(
        RUNTIME in path.read_text(encoding="utf-8", errors="replace")
        for path in project.glob("*.py")
    )


def _files(project: Path) -> list[str]:
    found = (path.relative_to(project) for path in project.rglob("*") if not path.is_dir())
    return sorted(path.as_posix() for path in found if path.parts[0] != ".git")


def _agreed(template: Template) -> Template:
    """The template, trusted where it runs code and the user says yes to that.

    Raises `DreamError` where it runs code and nobody has said so.
    """
    if template.trusted:
        return template
    code = code_of(template)
    if not code:
        return template
    fact = f"The template runs code of its own: {'; '.join(code)}."
    if not template.asks:
        raise DreamError(fact, "Read it. If you trust who wrote it, add --trust.")
    import typer

    typer.echo("The template runs code of its own, with your rights:", err=True)
    for line in code:
        typer.echo(f"  {line}", err=True)
    if not typer.confirm("Do you trust who wrote it?", default=False, err=True):
        raise DreamError(fact, "Nothing was run and nothing was written.")
    return Template(**{**vars(template), "trusted": True})


def code_of(template: Template) -> list[str]:
    """What of a template runs code, a line each: tasks, extensions of jinja, migrations."""
    with _copier_errors(template), TemporaryDirectory(prefix="dream-new-") as folder:
        from copier._main import Worker

        with Worker(src_path=template.source, dst_path=Path(folder), quiet=True) as worker:
            found = worker.template
            commands = [task.cmd for task in found.tasks]
            tasks = [
                f"task: {command if isinstance(command, str) else ' '.join(map(str, command))}"
                for command in commands
            ]
            return [*tasks, *(f"jinja extension: {name}" for name in found.jinja_extensions)]


@contextmanager
def _told_on_stderr() -> Iterator[None]:
    """What tasks and questions print does not get between the lines of a report."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


@contextmanager
def _copier_errors(template: Template) -> Iterator[None]:
    """Errors of copier, of the template and of git as `DreamError`."""
    import subprocess

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from copier.errors import CopierError, UnsafeTemplateError
        from jinja2 import TemplateError
        from plumbum import ProcessExecutionError

        try:
            yield
        except UnsafeTemplateError as error:
            raise DreamError(_line(error), "If you trust who wrote it, add --trust.") from error
        except (ProcessExecutionError, subprocess.CalledProcessError) as error:
            said = str(getattr(error, "stderr", "") or error).strip().splitlines()
            fact = (
                f"{template.source} could not be used: {said[-1] if said else 'a command failed'}."
            )
            raise DreamError(
                fact, "Nothing was written. Look at the template or the URL."
            ) from error
        except (CopierError, TemplateError, ValueError, TypeError, KeyError) as error:
            fact = f"{template.source} could not be rendered: {_line(error)}"
            is_answer = isinstance(error, ValueError) and not isinstance(error, CopierError)
            cure = "Answer its questions with --data NAME=VALUE." if is_answer else "Mend it."
            raise DreamError(fact, f"Nothing was written. {cure}") from error


def _line(error: BaseException) -> str:
    return f"{str(error).partition(os.linesep)[0].rstrip('.') or type(error).__name__}."
