"""From a project on disk to the one with what was added."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ..answers import find_project, read_answers
from ..options import Options
from .added import Added
from .draft import Draft, carry_out, resume


def add(path: Path, work: Callable[[Draft, Options], Added], *, pretend: bool = False) -> Added:
    """Do `work` on a draft of the project that `path` lies in, and write it whole.

    Raises `DreamError`, with nothing changed, where that cannot be done.
    """
    project = find_project(path)
    if not pretend:
        resume(project)
    answers = read_answers(project)
    added = replace(work(Draft(project), answers.options), is_pretended=pretend)
    if added.writes and not pretend:
        carry_out(project, added.writes)
    return added
