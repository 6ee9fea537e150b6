"""`dream new --template`: from the options of the command line to what is told."""

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ..errors import DreamError
from .requirements import missing_packages
from .template import Made, create_from, preview_from, read_template


def run(said: SimpleNamespace, ours: Sequence[str]) -> str:
    """Make the project, or show it; returns what is printed. Raises `DreamError`.

    `said`: the options of `dream new`; `ours`: those given that are of dream's own templates.
    """
    source, path, assigned = said.template, said.path, said.data or ()
    if source is None:
        given = "--data" if assigned else "--trust"
        raise DreamError(f"{given} is for a template of your own.", "Name it with --template.")
    if ours:
        flag = f"--{ours[0].replace('_', '-')}"
        fact = f"{flag} is a question of the templates of dream, and not of {source}."
        raise DreamError(fact, "Leave it out, or answer with --data NAME=VALUE.")
    if path is None:
        raise DreamError("PATH is missing.", f"Run: dream new my-project --template {source}")
    target = Path(os.path.abspath(path))
    answers, defaults = _answers(said.data_file), said.defaults or said.as_json
    template = read_template(source, answers, assigned, defaults=defaults, trust=said.trust)
    if said.pretend:
        made = preview_from(template, target)
    else:
        made = create_from(template, target, force=said.force, git=not said.no_git)
    return (_as_json if said.as_json else _as_text)(made, path, said.pretend)


def _answers(data_file: str | None) -> Mapping[str, Any]:
    """What a file answers; whether there are such questions, the template says."""
    if data_file is None:
        return {}
    import yaml

    try:
        found = yaml.safe_load(Path(data_file).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise DreamError(f"{data_file} cannot be read: {reason}.", "Mend it.") from None
    if not isinstance(found, dict):
        raise DreamError(f"{data_file} holds no answers.", "Write name: value, one a line.")
    return found


def _next(made: Made, path: str) -> list[str]:
    enter = [f"cd {shlex.quote(path)}"] if path not in (".", "./") else []
    install = ["pip install -e ."] if missing_packages(made.folder) else []
    return [*enter, *install, *(["dream check"] if made.check else [])]


def _as_text(made: Made, path: str, pretended: bool) -> str:
    blocks = [made.tree]
    if pretended:
        count = len(made.replaced)
        same = f", {count} of them there already with other contents" if count else ""
        blocks.append(f"Nothing was written: {len(made.files)} files{same}.")
        return "\n\n".join(blocks)
    runtime = "The training runtime was put in: the template has none." if made.has_runtime else ""
    blocks.append("\n".join(filter(None, (runtime, made.git, made.check))))
    if made.replaced:
        blocks.append(f"Replaced: {', '.join(made.replaced)}.")
    if commands := _next(made, path):
        blocks.append("\n".join(["Next:", *(f"  {command}" for command in commands)]))
    return "\n\n".join(blocks)


def _as_json(made: Made, path: str, pretended: bool) -> str:
    report: dict[str, object] = {
        "version": 1,
        "project": str(made.folder),
        "template": made.source,
        "files": made.files,
        "replaced": made.replaced,
        "runtime_added": made.has_runtime,
    }
    if not pretended:
        report |= {"git": made.git, "check": made.check, "next": _next(made, path)}
    return json.dumps(report, indent=2)
