"""Source that was never meant for the check: real files in disguise, and damaged projects."""

import ast
import io
import random
import re
import tokenize

from dream_scaffold.check.hinge import contract

HOOKS = tuple(hook.name for hook in contract.HOOKS)

PROBE = """

import dream_trainer


class {name}(dream_trainer.DreamTrainer):
    pass


if __name__ == "__main__":
    {name}(
        dream_trainer.DreamTrainerConfig(
            device_parameters=dream_trainer.configs.DeviceParameters.FSDP(tensor_parallel=2)
        )
    )
"""
"""A trainer for a file that has none, so that every rule is run on it."""

HEADER = re.compile(r"class\s+(?P<name>\w+)\s*(?P<bases>\([^()\n]*\))?\s*(?P<rest>[:(])")


def with_probe(text: str) -> str:
    """`text` with a trainer of its own at the end."""
    return text + PROBE.format(name="Probe")


def as_trainers(text: str, seed: int = 0) -> str:
    """`text` with every class of it a trainer, whose methods are called like hooks.

    Raises `SyntaxError`, `ValueError` or `RecursionError` where it cannot be parsed.
    """
    tree = ast.parse(text)
    lines = text.split("\n")
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for number, node in enumerate(classes):
        _derive(lines, node)
        _rename_methods(lines, node, seed + number)
    at = _first_line(tree)
    lines.insert(at, "import dream_trainer")
    launched = [PROBE.format(name=node.name).partition("if __name__")[2] for node in classes[:3]]
    return "\n".join([*lines, *(f"if __name__{launch}" for launch in launched)])


def _derive(lines: list[str], node: ast.ClassDef) -> None:
    line = lines[node.lineno - 1]
    found = HEADER.search(line)
    if found is None:
        return
    opened = found["rest"] == "("
    bases = "(dream_trainer.DreamTrainer, " if opened else "(dream_trainer.DreamTrainer):"
    lines[node.lineno - 1] = (
        line[: found.start()] + f"class {found['name']}{bases}" + (line[found.end() :])
    )


def _rename_methods(lines: list[str], node: ast.ClassDef, seed: int) -> None:
    methods = [
        item
        for item in node.body
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) and item.name[:2] != "__"
    ]
    for number, method in enumerate(methods[: len(HOOKS)]):
        at = method.lineno - 1
        hook = HOOKS[(number + seed) % len(HOOKS)]
        lines[at] = lines[at].replace(f"def {method.name}", f"def {hook}", 1)


def _first_line(tree: ast.Module) -> int:
    """Behind the docstring and the imports from `__future__`."""
    last = 0
    for index, node in enumerate(tree.body):
        is_docstring = index == 0 and isinstance(node, ast.Expr)
        if is_docstring or (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            last = node.end_lineno or last
    return last


def damaged(text: str, chance: random.Random) -> str:
    """`text` with a few tokens or syntax nodes lost, doubled or exchanged; it mostly parses."""
    for _ in range(8):
        damage = _damage_tokens if chance.random() < 0.4 else _damage_tree
        try:
            result = damage(text, chance)
        except ValueError:  # A tree that no source could have.
            continue
        if chance.random() < 0.1 or _parses(result):
            return result
    return text


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _damage_tokens(text: str, chance: random.Random) -> str:
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    pieces: list[str] = []
    row, column = 1, 0
    lines = text.splitlines(keepends=True)
    for token in tokens:
        # What lies between two tokens stays as it is.
        (start_row, start), (end_row, end) = token.start, token.end
        if start_row == row and start_row <= len(lines):
            pieces.append(lines[start_row - 1][column:start])
        elif start_row <= len(lines):
            pieces.append(lines[start_row - 1][:start])
        pieces.append(token.string)
        row, column = end_row, end
    words = [index for index, piece in enumerate(pieces) if piece.strip()]
    for _ in range(chance.choice((1, 1, 2, 5))):
        one, other = chance.choice(words), chance.choice(words)
        match chance.randrange(4):
            case 0:
                pieces[one] = ""
            case 1:
                pieces[one] += " " + pieces[one]
            case 2:
                pieces[one], pieces[other] = pieces[other], pieces[one]
            case _:
                pieces[one] = pieces[other]
    return "".join(pieces)


def _damage_tree(text: str, chance: random.Random) -> str:
    tree = ast.parse(text)
    for _ in range(chance.choice((1, 2, 4, 8))):
        nodes = [node for node in ast.walk(tree) if isinstance(node, (ast.expr, ast.stmt))]
        holders = [
            (node, name, index, item)
            for node in ast.walk(tree)
            for name, value in ast.iter_fields(node)
            for index, item in enumerate(value if isinstance(value, list) else [value])
            if isinstance(item, (ast.expr, ast.stmt))
        ]
        holder, name, index, item = chance.choice(holders)
        kind = ast.expr if isinstance(item, ast.expr) else ast.stmt
        other = chance.choice([node for node in nodes if isinstance(node, kind)])
        # A copy: a node that contained itself could not be written down.
        try:
            copy = ast.parse(ast.unparse(other)).body[0]
        except SyntaxError:
            continue  # An earlier change has made it what Python does not allow.
        new = copy.value if kind is ast.expr and isinstance(copy, ast.Expr) else copy
        if not isinstance(new, kind):
            continue
        held = getattr(holder, name)
        if not isinstance(held, list):
            setattr(holder, name, new)
        elif kind is ast.stmt and len(held) > 1 and chance.random() < 0.3:
            del held[index]
        elif kind is ast.stmt and chance.random() < 0.4:
            held.insert(index, new)
        else:
            held[index] = new
    return ast.unparse(ast.fix_missing_locations(tree))
