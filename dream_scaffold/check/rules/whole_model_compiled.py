"""A whole model is compiled that is sharded or split afterwards.

`fully_shard` gathers each block just before it is used, and tensor parallelism puts
collectives between the matrices: none of it can be compiled into one graph. The compiler
breaks the graph at every block, compiles each of them anew, and takes minutes to gain
little. Blocks that are alike share one compiled graph when they are compiled one by one.

Bad:

    def apply_compile(self):
        self.model.compile()

Good:

    def apply_compile(self):
        for layer in self.model.layers:
            layer.compile()

How to fix: compile the blocks, each in place. Under `DDP` alone a whole model may be
compiled. See docs/parallelism.md.
"""

from collections.abc import Iterator

from ..facts import (
    Behaviour,
    Call,
    Match,
    Path,
    Project,
    Severity,
    Term,
    callers,
    is_root,
    shown,
    work_of,
)

CODE = "DT219"
NAME = "whole-model-compiled"
SEVERITY: Severity = "warning"

_NET = """
    import torch
    from torch import nn
    from torch.distributed.fsdp import fully_shard

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = Net()

        def apply_fully_shard(self, config):
            fully_shard(self.model, **config)

        def apply_replicate(self, dp_replicate_mesh):
            replicate_all(self.model, dp_replicate_mesh)
"""

_FSDP = """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(compile_model=True)
    )
"""

PASSES = (
    _NET
    + """
        def apply_compile(self):
            for layer in self.model.layers:
                layer.compile()
    """
    + _FSDP,
    _NET
    + """
        def apply_compile(self):
            self.model.compile()

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.DDP(compile_model=True)
    )
    """,
    _NET
    + """
        def apply_compile(self):
            self.model.compile()

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(compile_model=False)
    )
    """,
    """
    from torch import nn

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = nn.Linear(2, 2)

        def apply_compile(self):
            self.model.compile()
    """
    + _FSDP,
)

MATCHES = (
    _NET
    + """
        def apply_compile(self):
            self.model.compile(mode="max-autotune")
    """
    + _FSDP,
    _NET
    + """
        def apply_compile(self):
            net = self.model
            torch.compile(net)
    """
    + _FSDP,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        for trace in trainer.behaviour.named("apply_compile"):
            for act, call in trace.calls("compile"):
                if work_of(call, trainer.behaviour) != trace.name:
                    continue
                whole = _compiled(call)
                if not is_root(whole, trainer.behaviour) or not _has_blocks(
                    whole, trainer.behaviour
                ):
                    continue
                for config, certain in callers(trainer, trace.name):
                    if "required" in (
                        config.hooks.get("apply_fully_shard"),
                        config.hooks.get("apply_tensor_parallel"),
                    ):
                        yield Match(
                            act.place,
                            f"`{shown(call)}` compiles a whole model that is sharded or "
                            "split block by block: the graph breaks at each of them.",
                            "Compile its blocks: `for layer in self.model.layers: "
                            "layer.compile()`.",
                            certain=certain,
                            config=config.name,
                            notes=act.notes,
                        )


def _compiled(call: Call) -> Term | None:
    """What a call compiles."""
    return call.argument(0, "model") if call.name == "torch.compile" else call.receiver


def _has_blocks(whole: Term | None, behaviour: Behaviour) -> bool:
    """Whether a model is known to have a list of blocks."""
    path = f"{whole.dotted}." if isinstance(whole, Path) else ""
    return any(
        known.startswith(path)
        and isinstance(made := behaviour.attributes[known], Call)
        and made.last in ("ModuleList", "ModuleDict", "Sequential")
        for known in behaviour.attributes
    )
