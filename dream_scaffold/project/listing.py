"""`dream new --list`: what recipes and modes there are, and what each is for."""

import json

from .modes import PARTS, SEVERAL
from .recipes import RECIPES


def as_text() -> str:
    """Two tables."""
    recipes = [(name, each.meaning, each.advice) for name, each in RECIPES.items()]
    modes = [(name, part.meaning, part.advice) for name, part in PARTS.items()]
    lines = ["--recipe", *_table(recipes), "", f"--parallel{SEVERAL}", *_table(modes)]
    for name, recipe in RECIPES.items():
        if len(recipe.parts) < len(PARTS):
            known = ", ".join(part for part in PARTS if part in recipe.parts)
            lines += ["", f"{name} goes with {known}: {recipe.why_not}."]
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
    return json.dumps({"version": 1, "recipes": recipes, "modes": modes}, indent=2)


def _table(rows: list[tuple[str, str, str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return [f"  {name:{widths[0]}}  {what:{widths[1]}}  {when}" for name, what, when in rows]
