"""`dream new`: from options to a project on disk, in one piece."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from .difference import difference
from .git import first_commit
from .options import Options
from .place import check_target, clear_up, put, refused_by_the_system, staged
from .render import render_project
from .snapshot import FOLDER, write_snapshot
from .tree import draw_tree
from .verify import check_project


@dataclass(frozen=True, kw_only=True)
class Created:
    """A project that now exists."""

    options: Options
    folder: Path
    tree: str
    git: str
    """What became of the first commit, as one sentence."""

    check: str
    """What `dream check` says of it."""

    replaced: list[str]
    """Files of the folder that made room, under `--force`."""


def create(target: Path, options: Options, *, force: bool = False, git: bool = True) -> Created:
    """Make the project `options` describe at `target`.

    Raises `DreamError`, with nothing written, where the options or the target do not do
    or the file system refuses.
    """
    options.check()
    with refused_by_the_system(target):
        clear_up(target)
        check_target(target, force=force)
    with refused_by_the_system(target), staged(target) as stage:
        project = stage / options.name
        project.mkdir()
        render_project(options, project)
        write_snapshot(project)
        commit = first_commit(project, target) if git else "No git repository was made."
        tree = draw_tree(project)
        replaced = put(project, target)
    return Created(
        options=options,
        folder=target,
        tree=tree,
        git=commit,
        check=check_project(target),
        replaced=replaced,
    )


@dataclass(frozen=True, kw_only=True)
class Preview:
    """A project that was not made."""

    options: Options
    folder: Path
    tree: str
    files: list[str]
    replaced: list[str]
    """Files of the folder that would get other contents."""

    diff: str


def preview(target: Path, options: Options) -> Preview:
    """What `create` would make at `target`. Raises `DreamError` as it does."""
    options.check()
    with TemporaryDirectory(prefix="dream-new-") as folder:
        project = Path(folder) / options.name
        project.mkdir()
        render_project(options, project)
        write_snapshot(project)
        names = sorted(
            path.relative_to(project).as_posix() for path in project.rglob("*") if path.is_file()
        )
        shown = [name for name in names if not name.startswith(f"{FOLDER}/")]
        differing = [
            name
            for name in shown
            if (target / name).is_file()
            and (target / name).read_bytes() != (project / name).read_bytes()
        ]
        lines = [
            line
            for name in differing
            for line in difference(
                name, (target / name).read_bytes(), (project / name).read_bytes()
            )
        ]
        return Preview(
            options=options,
            folder=target,
            tree=draw_tree(project),
            files=names,
            replaced=differing,
            diff="\n".join(lines),
        )
