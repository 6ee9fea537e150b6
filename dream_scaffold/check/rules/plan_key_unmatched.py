"""A key of a tensor-parallel plan names no module of the model.

torch applies a plan by names. A key that matches nothing is skipped with a warning that is
easily missed: the layer that was meant stays whole on every rank, and of a column-wise and
row-wise pair one half works alone, on the wrong shapes or the wrong numbers. The runtime
refuses such a plan at start-up; this rule says so before.

Bad:

    plan = {"layers.*.attn.query": ColwiseParallel()}   # the module is `attention`
    parallelize_module(self.model, tp_mesh, plan)

Good:

    plan = {"layers.*.attention.query": ColwiseParallel()}
    parallelize_module(self.model, tp_mesh, plan)

How to fix: write the names as the modules assign them, from the module that
`parallelize_module` gets, with `*` for the elements of a ModuleList. Only modules whose
constructors are in the project are looked at. See docs/parallelism.md.
"""

from collections.abc import Iterator

from ..facts import (
    Behaviour,
    Edit,
    Fix,
    Match,
    Note,
    Plan,
    Project,
    Severity,
    Spot,
    callers,
    names_below,
    plans,
    resolve,
)

CODE = "DT211"
NAME = "plan-key-unmatched"
SEVERITY: Severity = "warning"

_NET = """
    from torch import nn
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, RowwiseParallel, parallelize_module as split
    )

    class Block(nn.Module):
        def __init__(self, dim):
            super().__init__()
            self.up = nn.Linear(dim, dim)
            self.down = nn.Linear(dim, dim)

    class Net(nn.Module):
        def __init__(self, dim):
            super().__init__()
            self.layers = nn.ModuleList(Block(dim) for _ in range(3))
            self.head = nn.Linear(dim, 4)

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(compile_model=False, tensor_parallel=2)
    )

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = Net(8)
"""

PASSES = (
    _NET
    + """
        def apply_tensor_parallel(self, tp_mesh):
            plan = {"layers.*.up": ColwiseParallel(), "layers.0.down": RowwiseParallel()}
            plan["head"] = ColwiseParallel()
            split(self.model, tp_mesh, plan)
    """,
    _NET
    + """
        def apply_tensor_parallel(self, tp_mesh):
            for block in self.model.layers:
                split(block, tp_mesh, {"up": ColwiseParallel(), "d*": RowwiseParallel()})
    """,
    """
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
    from somewhere import Net

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(compile_model=False, tensor_parallel=2)
    )

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = Net()

        def apply_tensor_parallel(self, tp_mesh):
            parallelize_module(self.model, tp_mesh, {"anything": ColwiseParallel()})
    """,
    """
    from torch import nn
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(compile_model=False, tensor_parallel=2)
    )

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            for index in range(3):
                self.add_module(f"layer{index}", nn.Linear(2, 2))

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = Net()

        def apply_tensor_parallel(self, tp_mesh):
            parallelize_module(self.model, tp_mesh, {"layer1": ColwiseParallel()})
    """,
)

MATCHES = (
    _NET
    + """
        def apply_tensor_parallel(self, tp_mesh):
            split(self.model, tp_mesh, {"layers.*.upp": ColwiseParallel()})
    """,
    _NET
    + """
        def apply_tensor_parallel(self, tp_mesh):
            self.split_blocks(tp_mesh)

        def split_blocks(self, mesh):
            plan = {"up": ColwiseParallel(), "feed.down": RowwiseParallel()}
            for block in self.model.layers:
                split(block, device_mesh=mesh, parallelize_plan=plan)
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        behaviour = trainer.behaviour
        for trace in behaviour.named("apply_tensor_parallel"):
            for plan in plans(trace):
                keys = [
                    key for key in plan.styles if key and resolve(behaviour, plan.path, key) == []
                ]
                if not keys or _is_cut(behaviour):
                    continue
                for key in keys:
                    match = _told(plan, key, behaviour)
                    for config, certain in callers(trainer, trace.name):
                        yield match._replace(config=config.name, certain=certain)


def _is_cut(behaviour: Behaviour) -> bool:
    return any(trace.is_cut for trace in behaviour.named("configure_models"))


def _told(plan: Plan, key: str, behaviour: Behaviour) -> Match:
    from difflib import get_close_matches

    names = names_below(behaviour, plan.path) - set(plan.styles)
    close = get_close_matches(key, sorted(names), n=1)
    spot = plan.spots.get(key)
    return Match(
        plan.act.place if spot is None else spot.place,
        f'No module of `{plan.path}` matches "{key}" of this plan: what is meant would stay '
        "whole on every rank.",
        f'Did you mean "{close[0]}"?' if close else "Write the names as the modules assign them.",
        notes=plan.act.notes if spot is None else (Note("applied here", plan.act.place),),
        fix=_fix(spot, key, close),
    )


def _fix(spot: Spot | None, key: str, close: list[str]) -> Fix | None:
    if spot is None or not close or spot.text != f'"{key}"':
        return None
    return Fix(f'Write "{close[0]}"', (Edit(spot.place, f'"{close[0]}"'),), safe=False)
