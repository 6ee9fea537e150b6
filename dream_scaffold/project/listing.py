"""`dream new --list`: what recipes, modes and presets there are, and what each is for."""

import json

from . import presets
from .modes import PARTS, SEVERAL
from .recipes import RECIPES

PRESETS = {
    "tracker": presets.TRACKERS,
    "launch": presets.LAUNCHERS,
    "ci": presets.WORKFLOWS,
    "docker": {"": presets.IMAGES[True]},
    "license": presets.LICENSES,
}
"""Option -> its values; that of `--docker` is the option itself."""


def as_text() -> str:
    """A table for each option."""
    recipes = [(name, each.meaning, each.advice) for name, each in RECIPES.items()]
    modes = [(name, part.meaning, part.advice) for name, part in PARTS.items()]
    lines = ["--recipe", *_table(recipes), "", f"--parallel{SEVERAL}", *_table(modes)]
    for name, recipe in RECIPES.items():
        if len(recipe.parts) < len(PARTS):
            known = ", ".join(part for part in PARTS if part in recipe.parts)
            lines += ["", f"{name} goes with {known}: {recipe.why_not}."]
    for flag, choices in PRESETS.items():
        more = presets.SEVERAL if flag == "launch" else ""
        rows = [(name, each.meaning, each.advice) for name, each in choices.items()]
        lines += ["", f"--{flag}{more}", *_table(rows)]
    return "\n".join(lines)


def as_json() -> str:
    """One object; its keys stay."""
    recipes = [
        {
            "name": name,
            "meaning": recipe.meaning,
            "advice": recipe.advice,
            "parallel": [part for part in PARTS if part in recipe.parts],
        }
        for name, recipe in RECIPES.items()
    ]
    modes = [
        {"name": name, "meaning": part.meaning, "advice": part.advice, "ranks": part.ranks}
        for name, part in PARTS.items()
    ]
    chosen = {
        flag: [
            {"name": name, "meaning": each.meaning, "advice": each.advice}
            for name, each in choices.items()
        ]
        for flag, choices in PRESETS.items()
    }
    listed = {"version": 1, "recipes": recipes, "modes": modes, "presets": chosen}
    return json.dumps(listed, indent=2)


def _table(rows: list[tuple[str, str, str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return [f"  {name:{widths[0]}}  {what:{widths[1]}}  {when}" for name, what, when in rows]
