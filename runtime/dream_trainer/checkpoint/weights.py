"""Weights from elsewhere into a trainer's models, on any mesh, and never silently in part."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from ..configs import RunError
from ..materialize import shortened
from ..seeding import clean
from ..world import World
from .agreement import together
from .manifest import Mode
from .sources import Weights, is_safetensors, open_weights
from .state import model_state

if TYPE_CHECKING:
    from ..trainer import BaseTrainer

MOST_PATTERNS = 4
"""How many patterns a message proposes before it proposes "*"."""


@dataclass(frozen=True)
class Matched:
    """How much of the models a source filled; the same on every rank."""

    filled: int
    total: int
    """All tensors of the models, wanted or not."""

    missing: tuple[str, ...]
    """What stayed as it was, as `allow_missing` permits."""

    unexpected: tuple[str, ...]
    """What the source holds beyond it, as `allow_unexpected` permits."""

    def __str__(self) -> str:
        return f"{self.filled} of {self.total} tensors matched"


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which tensors of a source go where, by their names.

    Patterns are those of `fnmatch`, over names with or without the model's attribute name.
    `include`, `exclude` and the keys of `rename` speak of names in the source.
    """

    roots: tuple[str, ...]
    """The attribute names of the trainer's models."""

    include: Sequence[str] = ("*",)
    exclude: Sequence[str] = ()
    rename: Mapping[str, str]
    """Prefix in the source -> prefix in the trainer; "" is the prefix of every name."""

    def plain(self, name: str) -> str:
        """`name` without what wrappers add to it."""
        root, rest = self.split(clean(name))
        return root + rest.removeprefix("module.")

    def split(self, name: str) -> tuple[str, str]:
        """The attribute name with its dot, or nothing, and the rest."""
        root, _, rest = name.partition(".")
        return (f"{root}.", rest) if root in self.roots else ("", name)

    def matches(self, name: str, patterns: Iterable[str]) -> bool:
        spellings = {name, self.split(name)[1]}
        if len(self.roots) == 1:
            spellings.add(f"{self.roots[0]}.{name}")
        return any(fnmatchcase(text, pattern) for pattern in patterns for text in spellings)

    def chosen(self, name: str) -> bool:
        return self.matches(name, self.include) and not self.matches(name, self.exclude)

    def target(self, name: str) -> str:
        """What the trainer calls the source's `name`."""
        return self._renamed(name, self.rename)

    def origin(self, key: str) -> str:
        """What the source would call the trainer's `key`."""
        return self._renamed(key, {new: old for old, new in self.rename.items()})

    def _renamed(self, name: str, prefixes: Mapping[str, str]) -> str:
        root, rest = self.split(name)
        for old, new in prefixes.items():
            for start, text in ((root, rest), ("", name)):
                if not old or f"{text}.".startswith(f"{old}."):
                    tail = text[len(old) :].removeprefix(".")
                    return start + ".".join(part for part in (new, tail) if part)
        return name

    def idle(self, names: Sequence[str]) -> list[str]:
        """The settings that concern none of `names`, as they were written."""
        patterns = [("include", p) for p in self.include] + [("exclude", p) for p in self.exclude]
        found = [f"{kind}={p!r}" for kind, p in patterns if not self.any_matches(names, p)]
        moved = ((o, {o: n}) for o, n in self.rename.items())
        return found + [
            f"rename={one}" for _, one in moved if all(self._renamed(k, one) == k for k in names)
        ]

    def any_matches(self, names: Iterable[str], pattern: str) -> bool:
        return any(self.matches(name, (pattern,)) for name in names)


def load_weights(
    trainer: "BaseTrainer",
    source: str,
    *,
    allow_missing: Sequence[str] = (),
    allow_unexpected: Sequence[str] = (),
    include: Sequence[str] = ("*",),
    exclude: Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    purpose: str = "init-from",
    monitor: str = "",
    mode: Mode = "last",
) -> Matched:
    """Fill the trainer's parameters and persistent buffers in place. All ranks take part.

    `source` is what `open_weights` takes. Names in safetensors go through the trainer's
    `hugging_face_layout`; the rest of the naming is that of `Selection`. Dtypes are converted.
    Raises `RunError`, the same on every rank, for a tensor of the models that the source lacks
    or holds in another shape, or the other way round, unless a pattern allows it; and for what
    cannot be read. `purpose` begins the messages; `monitor` and `mode` choose among a run's
    checkpoints.
    """
    world = trainer.world
    roots = tuple(trainer.named_models())
    selection = Selection(roots=roots, include=include, exclude=exclude, rename=rename or {})
    own = together(world, lambda: live_tensors(trainer, selection), purpose)
    shapes = over_stages(world, {key: tensor.shape for key, tensor in own.items()})

    def prepare() -> tuple[Weights, dict[str, str], Matched]:
        share = {"rank": world.rank, "ranks": world.world_size}
        weights = open_weights(source, **share, monitor=monitor, mode=mode)
        layout = trainer.hugging_face_layout() if is_safetensors(source) else None
        own_names = {name: key for key, name in layout[0].items()} if layout else {}
        match = Match(source, purpose, selection, own_names)
        routes, unexpected = match.routes(list(weights.shapes), shapes)
        routes = match.of_equal_shape(routes, weights.shapes, shapes, allow_missing)
        matched = match.judge(routes, unexpected, shapes, allow_missing, allow_unexpected)
        return weights, routes, matched

    weights, routes, matched = together(world, prepare, f"{purpose} cannot read {source}")

    def read() -> None:
        with torch.no_grad():
            weights.read({name: own[key] for name, key in routes.items() if key in own})

    together(world, read, f"{purpose} cannot read {source}")
    return matched


@dataclass(frozen=True)
class Match:
    """One source held against a trainer's tensors; every rank comes to the same result."""

    source: str
    purpose: str
    selection: Selection
    own_names: Mapping[str, str]
    """Hugging Face name -> the trainer's, without the attribute name."""

    def routes(
        self, names: Sequence[str], shapes: Mapping[str, Any]
    ) -> tuple[dict[str, str], list[str]]:
        """Name in the source -> key of the trainer that it fills, and the names that fill none."""
        selection, routes = self.selection, {}
        plain = {name: self.own_names.get(name) or selection.plain(name) for name in names}
        if idle := selection.idle(list(plain.values())):
            raise RunError(
                f"{self.purpose}: {idle[0]} fits none of the {len(names)} tensors of "
                f"{self.source}, which are {shortened(list(plain.values()), shown=3)}."
            )
        unexpected, filled = [], dict[str, str]()
        for name in (name for name in names if selection.chosen(plain[name])):
            key = selection.target(plain[name])
            if key not in shapes and len(selection.roots) == 1:
                key = f"{selection.roots[0]}.{key}"  # A model saved by itself.
            if key not in shapes:
                unexpected.append(name)
                continue
            if key in filled:
                raise RunError(
                    f"{self.purpose}: {filled[key]} and {name} of {self.source} would both fill "
                    f"{key}. Leave one out by exclude."
                )
            filled[key], routes[name] = name, key
        return routes, unexpected

    def judge(
        self,
        routes: Mapping[str, str],
        unexpected: Sequence[str],
        shapes: Mapping[str, Any],
        allow_missing: Sequence[str],
        allow_unexpected: Sequence[str],
    ) -> Matched:
        """Raise unless what is left over on either side was allowed."""
        selection, filled = self.selection, set(routes.values())
        missing = [k for k in shapes if k not in filled and selection.chosen(selection.origin(k))]
        told = f"{self.purpose} matched {len(routes)} of {len(shapes)} tensors."
        faults = [
            f"{kind}: {shortened(names, shown=1)}. Pass {option}={self._patterns(names)} if "
            "intended."
            for kind, option, allowed, left in (
                ("Missing", "allow_missing", allow_missing, missing),
                ("Unexpected", "allow_unexpected", allow_unexpected, unexpected),
            )
            if (names := [name for name in left if not selection.matches(name, allowed)])
        ]
        if not routes:
            faults = [
                f"{self.source} holds {shortened(list(unexpected), shown=3) or 'nothing of it'}; "
                f"this trainer {shortened(list(shapes), shown=3)}. Pass rename={{old: new}}."
            ]
        if faults:
            raise RunError(" ".join([told, *faults]))
        return Matched(len(routes), len(shapes), tuple(missing), tuple(unexpected))

    def _patterns(self, names: Sequence[str]) -> str:
        rests = [self.selection.split(name)[1].partition(".") for name in names]
        found = sorted({f"{first}.*" if dot else first for first, dot, _ in rests})
        return json.dumps(found if len(found) <= MOST_PATTERNS else ["*"])

    def of_equal_shape(
        self,
        routes: Mapping[str, str],
        theirs: Mapping[str, Any],
        ours: Mapping[str, Any],
        allow_missing: Sequence[str],
    ) -> dict[str, str]:
        """`routes` without those between other shapes; raises unless each of these may miss."""
        other = {name: key for name, key in routes.items() if theirs[name] != ours[key]}
        wrong = [n for n, key in other.items() if not self.selection.matches(key, allow_missing)]
        if wrong:
            key = other[wrong[0]]
            more = f" ({len(wrong) - 1} more differ)" if len(wrong) > 1 else ""
            raise RunError(
                f"{self.purpose}: {key} is {tuple(theirs[wrong[0]])} in {self.source} and "
                f"{tuple(ours[key])} here{more}. Build the model with the sizes of the source, or "
                f"leave it as it is: allow_missing={self._patterns([other[n] for n in wrong])}."
            )
        return {name: key for name, key in routes.items() if name not in other}


def live_tensors(trainer: "BaseTrainer", selection: Selection) -> dict[str, Tensor]:
    """What `model_state` returns, by plain name.

    Raises `RunError` where it returns copies: what is written to them reaches no model.
    """
    state, again = model_state(trainer), model_state(trainer)
    tensors = {key: value for key, value in state.items() if isinstance(value, Tensor)}
    for key, tensor in tensors.items():
        if _address(tensor) != _address(again[key]):
            raise RunError(
                f"model_state_dict returned {key} as a copy, which cannot be loaded into. Return "
                "the tensors themselves, as get_model_state_dict(model) without options does."
            )
    return {selection.plain(key): tensor for key, tensor in tensors.items()}


def _address(tensor: Tensor) -> int:
    local = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
    return local.untyped_storage().data_ptr()


def over_stages(world: World, part: dict[str, Any]) -> dict[str, Any]:
    """What all stages of a pipeline know, each its part of it."""
    parts = [part]
    if world.pp_group is not None:
        parts *= world.axes.pp
        dist.all_gather_object(parts, part, group=world.pp_group)
    return {key: value for known in parts for key, value in known.items()}
