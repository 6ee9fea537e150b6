"""A block's activations are split along the sequence, and one of its norms is not in the plan.

With `Shard(1)` layouts each rank holds a part of every sequence between the matrices. A norm
there sees its rank's tokens alone, so the gradient of its weight is a part of the whole; only
`SequenceParallel()` adds the parts up. Without it the loss is right, and the norm's weights
silently drift apart between the ranks.

Bad:

    block = {
        "attention_norm": SequenceParallel(),
        "attention.out": RowwiseParallel(output_layouts=Shard(1)),
        "feed_forward.down": RowwiseParallel(output_layouts=Shard(1)),
    }                                                  # where is feed_forward_norm?

Good:

    block = {
        "attention_norm": SequenceParallel(),
        "feed_forward_norm": SequenceParallel(),
        "attention.out": RowwiseParallel(output_layouts=Shard(1)),
        "feed_forward.down": RowwiseParallel(output_layouts=Shard(1)),
    }

How to fix: name every norm of the block in the plan as `SequenceParallel()`. Blocks whose
constructors are in the project are looked at. See docs/parallelism.md.
"""

from collections.abc import Iterator

from ..facts import (
    NORMS,
    Behaviour,
    Call,
    Constant,
    Match,
    Path,
    Plan,
    Project,
    Severity,
    Term,
    callers,
    children,
    is_split,
    layouts,
    plans,
    resolve,
)

CODE = "DT216"
NAME = "norm-not-in-plan"
SEVERITY: Severity = "error"

GATHERS = ("PrepareModuleInput",)
"""What gives a module the whole sequence: its own norms see all of it."""

_NET = """
    from torch import nn
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
        parallelize_module,
    )

    class FeedForward(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(8)
            self.up = nn.Linear(8, 8)
            self.down = nn.Linear(8, 8)

        def forward(self, x):
            return self.down(self.norm(self.up(x)))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.RMSNorm(8)
            self.plain = nn.LayerNorm(8, elementwise_affine=False)
            self.feed = FeedForward()

        def forward(self, x):
            return x + self.feed(self.plain(self.first(x)))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Block() for _ in range(3))

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(compile_model=False, tensor_parallel=2)
    )

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = Net()

        def apply_tensor_parallel(self, tp_mesh):
"""

_GATHER = """
            gather = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=None)
            down = RowwiseParallel(output_layouts=Shard(1))
"""

PASSES = (
    _NET
    + _GATHER
    + """
            plan = {"first": SequenceParallel(), "feed": gather, "feed.down": down}
            for block in self.model.layers:
                parallelize_module(block, tp_mesh, plan)
    """,
    _NET
    + _GATHER
    + """
            parallelize_module(self.model, tp_mesh, {"layers.*.feed": gather})
            parallelize_module(self.model, tp_mesh, {"layers.*.feed.down": down})
            for block in self.model.layers:
                parallelize_module(block.first, tp_mesh, SequenceParallel())
    """,
    _NET
    + """
            plan = {"feed.up": ColwiseParallel(), "feed.down": RowwiseParallel()}
            for block in self.model.layers:
                parallelize_module(block, tp_mesh, plan)
    """,
    _NET
    + _GATHER
    + """
            for block in self.model.layers:
                parallelize_module(block, tp_mesh, {**more_styles(), "feed.down": down})
    """,
)

MATCHES = (
    _NET
    + _GATHER
    + """
            for block in self.model.layers:
                parallelize_module(block, tp_mesh, {"feed": gather, "feed.down": down})
    """,
    _NET
    + """
            plan = {
                "layers.*.feed.up": ColwiseParallel(input_layouts=Shard(1)),
                "layers.*.feed.down": RowwiseParallel(output_layouts=Shard(1)),
            }
            parallelize_module(self.model, tp_mesh, plan)
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        behaviour = trainer.behaviour
        for trace in behaviour.named("apply_tensor_parallel"):
            found = list(plans(trace))
            count = sum(1 for _ in trace.calls("parallelize_module"))
            if not found or trace.is_open or count > len({plan.act.spot for plan in found}):
                continue
            if any(plan.is_open for plan in found):
                continue
            named = _named(found, behaviour)
            if named is None:
                continue
            for plan, norm in _left_out(found, named, behaviour):
                for config, certain in callers(trainer, trace.name):
                    yield Match(
                        plan.act.place,
                        f"`{norm}` works on a split sequence, but the plan does not name it: "
                        "its weights would differ between tp ranks.",
                        f'Add "{norm.rpartition(".")[2]}": SequenceParallel() to the plan of its '
                        "block.",
                        certain=certain,
                        config=config.name,
                        notes=plan.act.notes,
                    )


def _named(found: list[Plan], behaviour: Behaviour) -> dict[str, Term] | None:
    """Path -> its style, of all plans; None where a key may mean anything."""
    named: dict[str, Term] = {}
    for plan in found:
        for key, style in plan.styles.items():
            paths = resolve(behaviour, plan.path, key)
            if paths is None:
                return None
            named |= dict.fromkeys(paths, style)
    return named


def _left_out(
    found: list[Plan], named: dict[str, Term], behaviour: Behaviour
) -> Iterator[tuple[Plan, str]]:
    """The norms beside what leaves its output split along the sequence."""
    told: set[str] = set()
    for plan in found:
        for key, style in plan.styles.items():
            split = any(is_split(layout, 1) for layout in layouts(style, "output_layouts"))
            if not split or not (isinstance(style, Call) and style.last == "RowwiseParallel"):
                continue
            for path in resolve(behaviour, plan.path, key) or ():
                for norm in _beside(path, named, behaviour):
                    if norm not in told:
                        told.add(norm)
                        yield plan, norm


def _beside(path: str, named: dict[str, Term], behaviour: Behaviour) -> Iterator[str]:
    """The unnamed norms on split sequences in the modules around a layer, the nearest first."""
    owner = path.rpartition(".")[0]
    while owner.count(".") > 0:
        names = children(behaviour, owner)
        style = named.get(owner)
        if names is None or (isinstance(style, Call) and style.last not in GATHERS):
            return
        for name in sorted(names) if style is None else ():
            norm = f"{owner}.{name}"
            left = norm not in named and _is_norm(norm, behaviour)
            if left and _is_on_split_sequence(norm, named, behaviour):
                yield norm
        owner = owner.rpartition(".")[0]


def _is_norm(path: str, behaviour: Behaviour) -> bool:
    """Whether there is a norm that has weights."""
    kind = behaviour.kinds.get(path)
    if kind is not None:
        return kind.is_module and kind.name.endswith("Norm") and "Parameter" in kind.mentioned
    made = behaviour.made_by(Path(path))
    if made is None or made.last not in NORMS or not made.is_foreign("torch"):
        return False
    affine = made.keywords.get("elementwise_affine")
    return not made.is_open and not (affine is not None and not _is_true(affine))


def _is_true(term: object) -> bool:
    return isinstance(term, Constant) and term.value is True


def _is_on_split_sequence(norm: str, named: dict[str, Term], behaviour: Behaviour) -> bool:
    """Whether a forward calls a norm, and not between a column-wise and a row-wise layer.

    A forward is followed for one object of each class.
    """
    owner = norm.rpartition(".")[0]
    kind = behaviour.kinds.get(owner)
    for other, forward in behaviour.forwards.items():
        if kind is None or behaviour.kinds[other] is not kind:
            continue
        for _, call in forward.calls(norm.rpartition(".")[2]):
            given = call.arguments[0] if call.arguments else None
            if given is None or call.name != other + norm.removeprefix(owner):
                continue
            read = {
                style.last
                for path, style in named.items()
                if isinstance(style, Call) and path.startswith(f"{owner}.")
                if given.reads(other + path.removeprefix(owner))
            }
            return "ColwiseParallel" not in read or "RowwiseParallel" in read
    return False
