"""The plan of tensor parallelism cuts through an attention head, or unevenly.

A column-wise layer gives each rank an equal share of its output. Where that output is heads,
their number has to be a multiple of `tensor_parallel`: of the key and value heads as well, of
which there are fewer with grouped-query attention. A row-wise layer takes its input in equal
parts. torch pads silently, and attention then mixes the halves of two heads, or a `view`
fails deep inside the model. The runtime refuses it at start-up.

Bad:

    DeviceParameters.FSDP(tensor_parallel=4)     # num_kv_heads = 2

Good:

    DeviceParameters.FSDP(tensor_parallel=2)     # num_kv_heads = 2

How to fix: use a number of heads that is a multiple of `tensor_parallel`, or lower it. Only
sizes that follow from the configuration are compared. See docs/parallelism.md.
"""

from collections.abc import Iterator

from ..facts import (
    Behaviour,
    Call,
    Configuration,
    Match,
    Path,
    Plan,
    Project,
    Severity,
    number,
    plans,
    resolve,
)

CODE = "DT213"
NAME = "indivisible-heads"
SEVERITY: Severity = "error"

_NET = """
    from torch import nn
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, RowwiseParallel, parallelize_module
    )

    class Attention(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.head_dim = config.dim // config.num_heads
            self.query = nn.Linear(config.dim, config.dim)
            self.key = nn.Linear(config.dim, config.num_kv_heads * self.head_dim)
            self.out = nn.Linear(config.dim, config.dim)

    @dataclass(kw_only=True)
    class Config(DreamTrainerConfig):
        dim: int = 64
        num_heads: int = 8
        num_kv_heads: int = 2

    class MyTrainer(Complete):
        config: Config

        def configure_models(self):
            self.model = Attention(self.config)

        def apply_tensor_parallel(self, tp_mesh):
            parallelize_module(self.model, tp_mesh, {
                "query": ColwiseParallel(), "key": ColwiseParallel(), "out": RowwiseParallel(),
            })
"""

PASSES = (
    _NET
    + """
    config = Config(
        device_parameters=DeviceParameters.FSDP(compile_model=False, tensor_parallel=2)
    )
    """,
    _NET
    + """
    config = Config(
        num_kv_heads=4,
        device_parameters=DeviceParameters.FSDP(compile_model=False, tensor_parallel=4),
    )
    """,
    _NET
    + """
    config = Config(
        num_kv_heads=read_heads(),
        device_parameters=DeviceParameters.FSDP(compile_model=False, tensor_parallel=4),
    )
    """,
    _NET
    + """
    config = Config(
        num_kv_heads=3,
        device_parameters=DeviceParameters.FSDP(compile_model=False),
    )
    """,
)

MATCHES = (
    _NET
    + """
    config = Config(
        device_parameters=DeviceParameters.FSDP(compile_model=False, tensor_parallel=4)
    )
    """,
    _NET
    + """
    config = Config(
        dim=66, num_heads=3, num_kv_heads=3,
        device_parameters=DeviceParameters.FSDP(compile_model=False, tensor_parallel=2),
    )
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        behaviour = trainer.behaviour
        found = [plan for t in behaviour.named("apply_tensor_parallel") for plan in plans(t)]
        for config in trainer.configs if found else ():
            tp = config.axes.get("tp")
            if not isinstance(tp, int) or tp < 2:
                continue
            for plan in found:
                for path, count, parts in _uneven(plan, tp, config, behaviour):
                    yield Match(
                        plan.act.place,
                        f"`{path}` has {count} {parts}, which tensor_parallel={tp} cannot divide.",
                        f"Use a multiple of {tp}, or lower tensor_parallel.",
                        config=config.name,
                        notes=plan.act.notes,
                    )


def _uneven(
    plan: Plan, tp: int, config: Configuration, behaviour: Behaviour
) -> Iterator[tuple[str, int, str]]:
    """The layers that a plan cannot cut into equal parts: their path, and how many of what."""
    for key, style in plan.styles.items():
        if not isinstance(style, Call) or style.last not in ("ColwiseParallel", "RowwiseParallel"):
            continue
        for path in resolve(behaviour, plan.path, key) or ():
            made = behaviour.made_by(Path(path))
            if made is None or made.name != "torch.nn.Linear":
                continue
            if style.last == "RowwiseParallel":
                columns = number(made.argument(0, "in_features"), config, behaviour)
                if columns is not None and columns % tp:
                    yield path, columns, "features"
                continue
            rows = number(made.argument(1, "out_features"), config, behaviour)
            owner = path.rpartition(".")[0]
            head_dim = number(Path(f"{owner}.head_dim"), config, behaviour)
            if rows is not None and head_dim and (rows // head_dim) % tp:
                yield path, rows // head_dim, "heads"
