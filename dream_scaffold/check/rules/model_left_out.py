"""A trained model, or a part of one, is left out by the hook that shards or replicates it.

The other models are sharded, this one is not: each rank trains a copy of its own, and
nobody averages their gradients. Nothing fails; what is saved is the copy of one rank. The
same holds for what stays outside of `replicate` where only blocks are replicated.

Bad:

    def configure_models(self):
        self.generator, self.critic = Generator(), Critic()

    def apply_fully_shard(self, config):
        fully_shard(self.generator, **config)

Good:

    def apply_fully_shard(self, config):
        fully_shard(self.generator, **config)
        fully_shard(self.critic, **config)

How to fix: treat every model that an optimizer trains. A model that only helps, such as a
frozen teacher, may stay as it is.
"""

from collections.abc import Iterator

from ..facts import (
    Behaviour,
    Match,
    Model,
    Path,
    Project,
    Severity,
    Trace,
    callers,
    is_within,
    targets,
    uncovered,
)

CODE = "DT210"
NAME = "model-left-out"
SEVERITY: Severity = "error"

VERBS = {
    "apply_fully_shard": ("fully_shard",),
    "apply_replicate": ("replicate", "DistributedDataParallel", "DDP"),
}
"""Hook -> the functions that do its work. A pipeline or a compiler may well serve one model."""

_TWO = """
    import torch
    from torch import nn
    from torch.distributed.fsdp import fully_shard

    class MyTrainer(Complete):
        def configure_models(self):
            self.one, self.two = nn.Linear(2, 2), nn.Linear(2, 2)

        def configure_optimizers(self):
            self.first = torch.optim.SGD(self.one.parameters(), lr=0.1)
            self.second = torch.optim.SGD(self.two.parameters(), lr=0.1)
            return {self.one: self.first, self.two: self.second}
"""

_FSDP = """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(compile_model=False)
    )
"""

PASSES = (
    _TWO
    + """
        def apply_fully_shard(self, config):
            for model in (self.one, self.two):
                fully_shard(model, **config)
    """
    + _FSDP,
    _TWO
    + """
        def apply_fully_shard(self, config):
            for model in self.named_models().values():
                fully_shard(model, **config)
    """
    + _FSDP,
    _TWO
    + """
        def apply_fully_shard(self, config):
            fully_shard(self.one, **config)

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.SINGLE_DEVICE(compile_model=False)
    )
    """,
)

MATCHES = (
    _TWO
    + """
        def apply_fully_shard(self, config):
            fully_shard(self.one, **config)
    """
    + _FSDP,
    """
    from torch import nn
    from torch.distributed._composable.replicate import replicate

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
            self.head = nn.Linear(2, 2)

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = Net()

        def configure_optimizers(self):
            return {self.model: torch.optim.SGD(self.model.parameters(), lr=0.1)}

        def apply_replicate(self, dp_replicate_mesh):
            for layer in self.model.layers:
                replicate(layer, device_mesh=dp_replicate_mesh)

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.DDP(compile_model=False)
    )
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        behaviour = trainer.behaviour
        models = [model for model in behaviour.models.values() if model.trained and model.certain]
        for hook, verbs in VERBS.items():
            for trace in behaviour.named(hook):
                # One that leaves all of them out is another rule's.
                left = [model for model in models if not _treats(trace, verbs, model.path)]
                if len(left) == len(models) or trace.is_open or _treats_unknown(trace, verbs):
                    continue
                out = [(f"self.{model.name}, which is trained", model) for model in left]
                if hook == "apply_replicate":
                    whole = [model for model in models if model not in left]
                    out += _parts(trace, verbs, whole, behaviour)
                for config, certain in callers(trainer, hook):
                    for what, model in out:
                        yield Match(
                            trace.place,
                            f"{hook} leaves out {what}.",
                            f"Call {verbs[0]} on self.{model.name}, too."
                            if model in left
                            else f"Call {verbs[0]} on self.{model.name} itself.",
                            certain=certain,
                            config=config.name,
                        )


def _parts(
    trace: Trace, verbs: tuple[str, ...], models: list[Model], behaviour: Behaviour
) -> Iterator[tuple[str, Model]]:
    """The models of which only parts are treated, with the first part that is not."""
    found = [term for _, call in trace.calls(*verbs) for term in targets(call)]
    paths = [term.dotted for term in found if isinstance(term, Path)]
    if len(paths) < len(found):
        return
    for model in models:
        inside = [path for path in paths if path.startswith(f"{model.path}.")]
        if inside and model.path not in paths:
            for left in (uncovered(behaviour, model.path, inside) or [])[:1]:
                yield f"{left}, which is trained", model


def _treats(trace: Trace, verbs: tuple[str, ...], path: str) -> bool:
    """Whether a model, a part of it or what it is handed to is treated."""
    handed = trace.hands_over(path) is not None
    return handed or any(
        is_within(argument, path)
        for _, call in trace.calls(*verbs)
        for argument in (*call.arguments, *call.keywords.values())
    )


def _treats_unknown(trace: Trace, verbs: tuple[str, ...]) -> bool:
    """Whether something is treated of which it is not known what it is."""
    for _, call in trace.calls(*verbs):
        target = call.argument(0, "module")
        if target is None or target.is_hidden or target.mentions("named_models", "**"):
            return True
    return False
