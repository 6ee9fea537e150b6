"""`dream new --template`: a project from a template of the user's own, rendered by copier."""

import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
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
IMPORT = re.compile(rf"^\s*(from|import)\s+{RUNTIME}\b", re.MULTILINE)
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
    with _opened(template) as worker:
        _refuse_inside(worker, target)
        trusted = _agreed(template, code_of(worker))
        with refused_by_the_system(target), staged(target) as stage:
            project = stage / target.name
            project.mkdir()
            has_runtime = _render(worker, template, project, trusted=trusted)
            commit = _commit(project, target) if git else "No git repository was made."
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
    with TemporaryDirectory(prefix="dream-new-") as folder, _opened(template) as worker:
        _refuse_inside(worker, target)
        project = Path(folder) / target.name
        project.mkdir()
        has_runtime = _render(worker, template, project, trusted=template.trusted, skip_tasks=True)
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


@contextmanager
def _opened(template: Template) -> Iterator[Any]:
    """copier's worker: the template is fetched once, and what was shown is what is rendered."""
    with ExitStack() as opened:
        with _copier_errors(template):
            from copier import Worker

            worker = opened.enter_context(
                Worker(
                    src_path=template.source,
                    data=dict(template.data),
                    defaults=not template.asks,
                    overwrite=True,
                    quiet=True,
                    cleanup_on_error=False,
                )
            )
            worker.template.config_data  # noqa: B018 - it fetches, and fails where it must
        yield worker


def _render(
    worker: Any, template: Template, project: Path, *, trusted: bool, skip_tasks: bool = False
) -> bool:
    """Render into an empty folder; returns whether the runtime was put in."""
    worker.dst_path, worker.unsafe, worker.skip_tasks = project, trusted, skip_tasks
    with _copier_errors(template), _told_on_stderr():
        worker.run_copy()
    if not trusted:
        _refuse_repositories(template, project)
    lacks = _uses_runtime(project) and not (project / RUNTIME).exists()
    if lacks:
        copy_runtime(project / RUNTIME)
    return lacks


def _refuse_repositories(template: Template, project: Path) -> None:
    """git runs the commands that the settings and hooks of a repository name."""
    for folder, folders, files in os.walk(project):
        for name in (*folders, *files):
            if name.lower() == ".git":
                where = os.path.relpath(os.path.join(folder, name), project)
                fact = f"{template.source} writes {where}, and git runs code that is named there."
                raise DreamError(fact, "Read it. If you trust who wrote it, add --trust.")


def _refuse_inside(worker: Any, target: Path) -> None:
    """A template that is written into while it is read has no end."""
    if target.resolve().is_relative_to(Path(worker.template.local_abspath).resolve()):
        raise DreamError(f"{target} lies in the template.", "Choose a path outside of it.")


def _commit(project: Path, target: Path) -> str:
    if os.path.lexists(project / ".git"):
        return "No commit was made: the template has made a repository of its own."
    return first_commit(project, target)


def _uses_runtime(project: Path) -> bool:
    return any(
        IMPORT.search(path.read_text(encoding="utf-8", errors="replace"))
        for path in project.glob("*.py")
        if path.is_file()
    )


def _files(project: Path) -> list[str]:
    found = (path.relative_to(project) for path in project.rglob("*") if not path.is_dir())
    return sorted(path.as_posix() for path in found if path.parts[0] != ".git")


def _agreed(template: Template, code: list[str]) -> bool:
    """Whether `code`, what the template runs, may run.

    Raises `DreamError` where there is some and nobody has said yes to it.
    """
    if template.trusted or not code:
        return template.trusted
    fact = f"The template runs code of its own: {'; '.join(code)}."
    if not template.asks:
        raise DreamError(fact, "Read it. If you trust who wrote it, add --trust.")
    import typer

    typer.echo("The template runs code of its own, with your rights:", err=True)
    for line in code:
        typer.echo(f"  {line}", err=True)
    if not typer.confirm("Do you trust who wrote it?", default=False, err=True):
        raise DreamError(fact, "Nothing was run and nothing was written.")
    return True


def code_of(worker: Any) -> list[str]:
    """What of a template runs code, a line each: tasks, extensions of jinja, migrations."""
    found = worker.template
    extensions = [f"jinja extension: {_shown(name)}" for name in found.jinja_extensions]
    tasks = [f"task: {_shown(task.cmd)}" for task in found.tasks]
    migrations = [
        f"migration, at copier update: {_shown(each)}"
        for each in found.config_data.get("migrations") or []
    ]
    return [*extensions, *tasks, *migrations]


def _shown(command: Any) -> str:
    """On one line, and without characters by which a terminal would hide a part."""
    if isinstance(command, Mapping):
        named = [command.get(name) for name in ("command", "before", "after")]
        return "; ".join(_shown(each) for each in named if each)
    words = command if isinstance(command, (list, tuple)) else [command]
    text = " ".join(map(str, words))
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


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
