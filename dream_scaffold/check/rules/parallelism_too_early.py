"""A model is sharded, replicated or split before the runtime is ready for it.

`configure_models` and `__init__` come before the hooks of parallelism, and run the same way
under every configuration. What is wrapped there is wrapped on one device as well, comes
before tensor parallelism, checkpointing and compilation, which have to come first, and does
not get the mesh that the runtime hands to the hooks.

Bad:

    def configure_models(self):
        self.model = DistributedDataParallel(Net())

Good:

    def configure_models(self):
        self.model = Net()

    def apply_replicate(self, dp_replicate_mesh):
        replicate(self.model, device_mesh=dp_replicate_mesh)

How to fix: move it to the hook of that mode: `apply_fully_shard`, `apply_replicate` or
`apply_tensor_parallel`. See docs/parallelism.md.
"""

from collections.abc import Iterator

from ..facts import Match, Project, Severity, work_of

CODE = "DT304"
NAME = "parallelism-too-early"
SEVERITY: Severity = "error"

HOOKS = ("apply_tensor_parallel", "apply_fully_shard", "apply_replicate")

PASSES = (
    """
    from torch import nn
    from torch.distributed.fsdp import fully_shard

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = nn.Linear(2, 2)

        def apply_fully_shard(self, config):
            fully_shard(self.model, **config)
    """,
    """
    class MyTrainer(Complete):
        def configure_models(self):
            self.model = make_model()
            self.copies = self.replicate(self.model)

        def replicate(self, model):
            return [model]
    """,
    """
    from torch.nn.parallel import DistributedDataParallel as DDP

    class MyTrainer(Complete):
        wrapper = DDP

        def configure_models(self):
            self.model = make_model()
            self.is_wrapped = isinstance(self.model, DDP)
    """,
)

MATCHES = (
    """
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel as DDP

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = DDP(nn.Linear(2, 2))
    """,
    """
    from torch import nn
    from torch.distributed import fsdp

    class Net(nn.Module):
        def __init__(self, mesh):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
            for layer in self.layers:
                fsdp.fully_shard(layer, mesh=mesh)

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = Net(self.world.mesh["dp_shard"])
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        for trace in trainer.behaviour.named("__init__", "configure_models"):
            for act, call in trace.calls():
                hook = work_of(call, trainer.behaviour)
                if hook in HOOKS:
                    yield Match(
                        act.place,
                        f"`{call.spot.callee.text}` is called in {trace.name}, before the runtime "
                        "has a mesh for it, and under every configuration.",
                        f"Move it to {hook}.",
                        notes=act.notes,
                    )
