"""A sharded model is called before the optimizer is built.

The first forward of a model treated by `fully_shard` gathers the parameters of the root, and
leaves them gathered. An optimizer that is built then holds those, not the shards that are
trained: the run goes on, and trains something else than the model. A forward in
`init_weights`, to warm up or to measure activations, is enough.

Bad:

    def init_weights(self):
        self.model.init_weights()
        scale = self.model(self.sample).std()

Good:

    def init_weights(self):
        self.model.init_weights()

How to fix: run no forward before the first step. What depends on activations can be done in
the first `training_step`.
"""

from collections.abc import Iterator

from ..facts import (
    Behaviour,
    Call,
    Match,
    Path,
    Project,
    Severity,
    callers,
    is_conditional,
    shown,
)

CODE = "DT309"
NAME = "forward-too-early"
SEVERITY: Severity = "error"

_NET = """
    from torch import nn
    from torch.distributed.fsdp import fully_shard

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(2, 2)

        def forward(self, x):
            return self.head(x)

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = Net()
"""

_FSDP = """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(compile_model=False)
    )
"""

PASSES = (
    _NET
    + """
        def init_weights(self):
            self.model.head.reset_parameters()
    """
    + _FSDP,
    _NET
    + """
        def init_weights(self):
            self.model(make_sample())

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.SINGLE_DEVICE(compile_model=False)
    )
    """,
    _NET
    + """
        def apply_fully_shard(self, config):
            self.model(make_sample())
            fully_shard(self.model, **config)
    """
    + _FSDP,
)

MATCHES = (
    _NET
    + """
        def init_weights(self):
            self.model.head.reset_parameters()
            self.scale = self.model(make_sample()).std()
    """
    + _FSDP,
    _NET
    + """
        def apply_fully_shard(self, config):
            fully_shard(self.model, **config)
            self.warm_up(self.model)

        def warm_up(self, net):
            for _ in range(3):
                net(make_sample())
    """
    + _FSDP,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        for trace in trainer.behaviour.named("apply_fully_shard", "init_weights"):
            sharded = trace.name == "init_weights"
            for act, call in trace.calls():
                sharded |= call.last == "fully_shard"
                if not sharded or not _is_forward(call, trainer.behaviour):
                    continue
                for config, certain in callers(trainer, "apply_fully_shard"):
                    yield Match(
                        act.place,
                        f"`{shown(call)}` runs a sharded model before configure_optimizers: "
                        "the optimizer would hold gathered parameters, which are not trained.",
                        "Run no forward before the first step.",
                        certain=certain and not is_conditional(act),
                        config=config.name,
                        notes=act.notes,
                    )


def _is_forward(call: Call, behaviour: Behaviour) -> bool:
    """Whether a whole model is called, and given something."""
    function = call.function
    if not isinstance(function, Path):
        return False
    models = behaviour.models
    return (
        function.root == "self"
        and function.dotted.count(".") == 1
        and (function.last in models and models[function.last].certain)
    )
