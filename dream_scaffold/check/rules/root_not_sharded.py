"""The blocks of a model are sharded, the model itself is not, or before its blocks.

`fully_shard(block)` takes the block's parameters. What no block holds, such as the
embedding, the last norm and the head, is taken by `fully_shard(self.model)` at the end.
Without it those stay plain tensors, whose gradients nobody averages: each rank goes its
own way, and nothing fails. With the model first, its blocks are sharded twice, which
torch refuses in words that do not say so.

Bad:

    def apply_fully_shard(self, config):
        for layer in self.model.layers:
            fully_shard(layer, **config)

Good:

    def apply_fully_shard(self, config):
        for layer in self.model.layers:
            fully_shard(layer, **config)
        fully_shard(self.model, **config)

How to fix: shard the blocks first, and end the hook with `fully_shard(self.model,
**config)`. See docs/parallelism.md.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ..facts import (
    Act,
    Behaviour,
    Call,
    Match,
    Note,
    Path,
    Project,
    Severity,
    Term,
    Trace,
    are_exclusive,
    callers,
    targets,
    uncovered,
)

CODE = "DT208"
NAME = "root-not-sharded"
SEVERITY: Severity = "error"

_NET = """
    from torch import nn
    from torch.distributed.fsdp import fully_shard as shard

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
            self.head = nn.Linear(2, 2)

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(compile_model=False)
    )

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = Net()
"""

PASSES = (
    _NET
    + """
        def apply_fully_shard(self, config):
            for part in [*self.model.layers, self.model]:
                shard(part, **config)
    """,
    _NET
    + """
        def apply_fully_shard(self, config):
            for module in self.model.modules():
                if isinstance(module, nn.Linear):
                    shard(module, **config)
    """,
    _NET
    + """
        def apply_fully_shard(self, config):
            for layer in self.model.layers:
                shard(layer, **config)
            shard(self.model.head, **config)
    """,
    _NET
    + """
        def apply_fully_shard(self, config):
            if self.world.world_size == 2:
                shard(self.model, **config)
            else:
                for layer in self.model.layers:
                    shard(layer, **config)
                net = self.model
                shard(net, **config)
    """,
    _NET
    + """
        def apply_fully_shard(self, config):
            for layer in self.model.layers:
                shard(layer, **config)
            for model in self.named_models().values():
                shard(model, **config)
    """,
)

MATCHES = (
    _NET.replace("            self.head = nn.Linear(2, 2)\n", "")
    + """
        def configure_optimizers(self):
            return {self.model: torch.optim.SGD(self.model.parameters(), lr=0.1)}

        def apply_fully_shard(self, config):
            shard(self.model.layers[0], **config)
    """,
    _NET
    + """
        def apply_fully_shard(self, config):
            for layer in self.model.layers:
                shard(layer, **config)
    """,
    _NET
    + """
        def apply_fully_shard(self, config):
            shard(self.model, **config)
            self.shard_blocks(self.model.layers, config)

        def shard_blocks(self, blocks, options):
            for index, block in enumerate(blocks):
                shard(block, **options)
    """,
)


class Sharded(NamedTuple):
    """One module, at a known path, that is sharded."""

    act: Act
    call: Call
    path: str


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        for trace in trainer.behaviour.named("apply_fully_shard"):
            found = _sharded(trace, trainer.behaviour)
            if not found or trace.is_open:
                continue
            faults = [*_early(found), *_bare(found, trace, trainer.behaviour)]
            for config, need in callers(trainer, "apply_fully_shard") if faults else ():
                for fault in faults:
                    certain = need and fault.certain
                    yield fault._replace(config=config.name, certain=certain)


def _sharded(trace: Trace, behaviour: Behaviour) -> list[Sharded]:
    """What is sharded, in order; nothing where a module is not known."""
    found: list[Sharded] = []
    for act, call in trace.calls("fully_shard"):
        for term in targets(call):
            path = _path(term, behaviour)
            if path is None or "**" in path:
                return []
            found.append(Sharded(act, call, path))
    return found


def _path(term: Term, behaviour: Behaviour) -> str | None:
    """Where a module lies; ends with "?" for some part of a model, however it is got at."""
    if isinstance(term, Path):
        return term.dotted
    for model in behaviour.models.values():
        of_model = {origin for origin in term.origins if f"{origin}.".startswith(f"{model.path}.")}
        if of_model and len(term.origins) == len(of_model) and model.path not in of_model:
            return None if term.mentions("modules", "named_modules") else f"{model.path}.?"
    return None


def _early(found: list[Sharded]) -> Iterator[Match]:
    """What is sharded before something inside it."""
    for index, outer in enumerate(found):
        for inner in found[index + 1 :]:
            if not inner.path.startswith(f"{outer.path}.") or inner.call is outer.call:
                continue
            if not are_exclusive(outer.act, inner.act):
                yield Match(
                    outer.act.place,
                    f"`{outer.path}` is sharded before a module inside it.",
                    "Shard the blocks first and the root last.",
                    notes=(Note("sharded afterwards", inner.act.place), *outer.act.notes),
                )
                break


def _bare(found: list[Sharded], trace: Trace, behaviour: Behaviour) -> Iterator[Match]:
    """The models of which only parts are sharded."""
    if trace.hands_over(*(model.path for model in behaviour.models.values())):
        return
    for model in behaviour.models.values():
        inside = [one for one in found if one.path.startswith(f"{model.path}.")]
        whole = any(one.path == model.path for one in found)
        if not inside or whole or model.trained is False:
            continue
        paths = [f"{one.path[:-1]}?" if _is_one(one) else one.path for one in inside]
        left = uncovered(behaviour, model.path, paths) if f"{model.path}.?" not in paths else None
        if left == [] and all(path.endswith(".?") for path in paths):
            left = [f"the rest of {paths[0].removesuffix('.?')}"]
        # A model has more than one list of blocks, even where its tree is not known.
        likely = all(path.endswith((".*", ".?")) for path in paths)
        if left == []:
            continue
        what = f" {left[0]} and whatever" if left else " What"
        yield Match(
            trace.place,
            f"Parts of self.{model.name} are sharded, the model itself is not:{what} no block "
            "holds stays outside every FSDP group, and its gradients would not be averaged.",
            f"End the hook with fully_shard(self.{model.name}, **config).",
            certain=(left is not None or likely) and model.trained is True,
            severity="warning" if left is None else None,
            notes=(Note("the last that is sharded", inside[-1].act.place),),
        )


def _is_one(sharded: Sharded) -> bool:
    """Whether of a list of blocks only one is sharded: `self.model.layers[0]`."""
    act, module = sharded.act, sharded.call.argument(0, "module")
    repeats = act.via or any(guard.kind in ("loop", "callback") for guard in act.guards)
    return sharded.path.endswith(".*") and isinstance(module, Path) and not repeats
