"""The tree of modules below a path, as far as the source shows it, and plans over it."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

from .behaviour import Behaviour
from .project import Configuration
from .spots import Spot
from .terms import Call, Constant, Derived, Display, Path, Term
from .traces import Act, Trace
from .work import is_module, targets

LEAVES = frozenset(
    {"Linear", "Embedding", "LayerNorm", "RMSNorm", "GroupNorm", "Dropout", "GELU", "ReLU", "SiLU"}
    | {"Conv1d", "Conv2d", "Conv3d", "BatchNorm1d", "BatchNorm2d", "Identity", "Bilinear", "Tanh"}
)
CONTAINERS = frozenset({"ModuleList", "Sequential", "ModuleDict"})
NORMS = frozenset({"LayerNorm", "RMSNorm", "GroupNorm"})

_HIDING = frozenset(
    {"add_module", "register_module", "setattr", "__setattr__", "__getattr__", "_modules"}
)
_GROWING = frozenset({"append", "extend", "insert", "update"})


class Plan(NamedTuple):
    """One call of `parallelize_module` on a module of a known path."""

    act: Act
    call: Call
    path: str
    styles: dict[str, Term]
    """Key -> its style."""

    spots: dict[str, Spot]
    """Key -> where it is written, where that is known."""

    is_open: bool
    """Whether it may have more keys."""


def plans(trace: Trace) -> Iterator[Plan]:
    """The tensor-parallel plans that a hook applies, where module and keys are known."""
    for act, call in trace.calls("parallelize_module"):
        plan = call.argument(2, "parallelize_plan", "plan")
        while isinstance(plan, Call) and len(plan.arguments) > 1:  # `present(model, plan)`
            plan = plan.arguments[1]
        if not isinstance(plan, Display) or plan.kind != "dict" or call.is_open:
            continue
        pairs = zip(plan.keys, plan.items, strict=True)
        styles = {
            key.value: style
            for key, style in pairs
            if isinstance(key, Constant) and isinstance(key.value, str)
        }
        spots = {
            key.value: spot
            for key, spot in zip(plan.keys, plan.spots, strict=False)
            if isinstance(key, Constant) and isinstance(key.value, str)
        }
        is_open = plan.is_open or len(styles) < len(plan.keys)
        for target in targets(call):
            if isinstance(target, Path):
                yield Plan(act, call, target.dotted, styles, spots, is_open)


def children(behaviour: Behaviour, path: str) -> frozenset[str] | None:
    """The names of what is assigned directly below a module; None where that is unknown."""
    if path not in behaviour.tree:
        behaviour.tree[path] = _children(behaviour, path)
    return behaviour.tree[path]


def _children(behaviour: Behaviour, path: str) -> frozenset[str] | None:
    names = behaviour.below.get(path, frozenset())
    kind = behaviour.kinds.get(path)
    if kind is not None:
        shown = all("." not in base or base in _PLAIN for base in kind.bases)
        if kind.is_open or not shown or kind.mentioned & _HIDING:
            return None
        return names if names or not path.endswith(".*") else _of_siblings(behaviour, path)
    made = behaviour.made_by(Path(path))
    if made is None or not made.name.startswith("torch.nn."):
        return None
    if made.last in LEAVES:
        return frozenset()
    if made.last not in CONTAINERS or not names:
        return None
    owner = behaviour.kinds.get(path.rpartition(".")[0])
    hides = owner is None or owner.mentioned & _HIDING
    grows = owner is None or ("*" not in names and owner.mentioned & _GROWING)
    return None if hides or grows else names


def _of_siblings(behaviour: Behaviour, path: str) -> frozenset[str] | None:
    """The names below the numbered elements of a list, for any one of them."""
    owner = path.removesuffix(".*")
    names: frozenset[str] = frozenset()
    for name in behaviour.below.get(owner, frozenset()) - {"*"}:
        found = children(behaviour, f"{owner}.{name}")
        if found is None:
            return None
        names |= found
    return names


_PLAIN = ("torch.nn.Module", "torch.nn.modules.module.Module")


def resolve(behaviour: Behaviour, path: str, key: str) -> list[str] | None:
    """The paths below a module that a plan's key names; None where that is unknown."""
    found = [path]
    for segment in key.split("."):
        deeper: list[str] = []
        for parent in found:
            names = children(behaviour, parent)
            if names is None:
                return None
            if segment.isdigit() and not any(_matches(segment, name) for name in names):
                return None  # A list may have grown.
            deeper += [f"{parent}.{name}" for name in sorted(names) if _matches(segment, name)]
        found = deeper
    return found


def _matches(segment: str, name: str) -> bool:
    if name == "*":
        return segment.isdigit() or "*" in segment or "?" in segment or "[" in segment
    return fnmatchcase(name, segment)


def names_below(behaviour: Behaviour, path: str) -> set[str]:
    """What keys of a plan for a module may be, elements as "*"."""
    start = f"{path}."
    return {known[len(start) :] for known in behaviour.attributes if known.startswith(start)}


def number(term: Term | None, config: Configuration, behaviour: Behaviour) -> int | None:
    """What a term comes to under a configuration, where that is a known integer."""
    if isinstance(term, Path) and term.dotted in behaviour.attributes:
        term = behaviour.definition(term)
    if isinstance(term, Path) and term.dotted.startswith("self.config."):
        return _integer(config.value(term.dotted.removeprefix("self.config.")))
    if isinstance(term, Constant):
        return _integer(term.value)
    if not isinstance(term, Derived) or len(term.of) != 2:
        return None
    left, right = (number(part, config, behaviour) for part in term.of)
    if left is None or right is None:
        return None
    match term.operator:
        case "Add":
            return left + right
        case "Sub":
            return left - right
        case "Mult":
            return left * right
        case "FloorDiv" if right:
            return left // right
    return None


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def layouts(style: Term, *names: str) -> Iterator[Term]:
    """The layouts that a parallel style is given under these keywords, one by one."""
    if isinstance(style, Call):
        for name in names:
            given = style.keywords.get(name)
            if isinstance(given, Display):
                yield from given.items
            elif given is not None:
                yield given


def is_split(layout: Term, dim: int) -> bool:
    """Whether a layout is `Shard(dim)`, whatever the branch."""
    return (
        isinstance(layout, Call)
        and layout.last == "Shard"
        and isinstance(given := layout.argument(0, "dim"), Constant)
        and given.value == dim
    )


def uncovered(behaviour: Behaviour, path: str, covered: list[str]) -> list[str] | None:
    """The modules with parameters directly below `path` that no path of `covered` reaches.

    None where what is below is unknown.
    """
    names = children(behaviour, path)
    if names is None:
        return None
    below = [f"{path}.{name}" for name in sorted(names)]
    return [
        child
        for child in below
        if not any(one == child or one.startswith(f"{child}.") for one in covered)
        and _holds(child, behaviour)
    ]


def _holds(path: str, behaviour: Behaviour) -> bool:
    """Whether a module is known to have parameters."""
    made = behaviour.made_by(Path(path))
    if made is None or not is_module(made, behaviour):
        return False
    return made.last[:1].isupper() and made.last not in (
        *("Dropout", "GELU", "ReLU", "SiLU", "Identity", "Tanh", "Sigmoid", "Flatten"),
        *("MSELoss", "CrossEntropyLoss", "Softmax", "ModuleList", "ModuleDict", "Sequential"),
    )
