"""A hook does the work of another one.

The runtime calls the hooks in the one order that works: tensor parallelism, checkpointing,
compilation, then sharding or replication; each wraps what the one before has made. Work
that is done in another hook is done out of order, and also where the configuration has the
mode switched off: `--no-compile` then compiles, and `checkpoint_activations=False` still
recomputes.

Bad:

    def apply_fully_shard(self, config):
        for layer in self.model.layers:
            fully_shard(layer, **config)
            layer.compile()

Good:

    def apply_compile(self):
        for layer in self.model.layers:
            layer.compile()

    def apply_fully_shard(self, config):
        for layer in self.model.layers:
            fully_shard(layer, **config)

How to fix: move the call into the hook that it belongs to, and let `DeviceParameters`
switch it on. See docs/parallelism.md.
"""

from collections.abc import Iterator

from ..facts import (
    BEFORE_MEMORY,
    Act,
    Call,
    Code,
    Match,
    Project,
    Severity,
    Trainer,
    callers,
    is_module,
    touches_model,
    work_of,
)

CODE = "DT214"
NAME = "work-in-other-hook"
SEVERITY: Severity = "error"

LATER = ("init_weights", "configure_optimizers", "configure_schedulers", "training_step")

SETTINGS = {
    "apply_tensor_parallel": "tensor_parallel",
    "apply_activation_checkpointing": "checkpoint_activations=True",
    "apply_compile": "compile_model=True",
    "apply_fully_shard": "dp_shard",
    "apply_replicate": "dp_replicate",
}

SWITCHES = ("compile", "gradient_checkpointing_enable", "set_grad_checkpointing")
"""What takes effect in the first forward only, and so is harmless in `configure_models`."""

EARLY = ("apply_tensor_parallel", "apply_fully_shard", "apply_replicate")
"""What is told of in `configure_models` by a rule of its own."""

_NET = """
    import torch
    from torch import nn
    from torch.distributed.fsdp import fully_shard

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
            self.act = torch.compile(nn.functional.gelu)

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = Net()
"""

_CONFIG = """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(compile_model=False)
    )
"""

PASSES = (
    _NET
    + """
        def apply_compile(self):
            self.treat(compiling=True)

        def apply_fully_shard(self, config):
            fully_shard(self.model, **config)

        def treat(self, compiling):
            for layer in self.model.layers:
                layer.compile()
    """
    + _CONFIG,
    _NET
    + """
        def training_step(self, batch, batch_idx):
            pattern = re.compile("x")
            loss = torch.compile(self.loss_of)(self.model(batch))
            return {"loss": loss}

        def loss_of(self, x):
            return x.mean()
    """
    + _CONFIG,
    _NET
    + """
        def apply_replicate(self, dp_replicate_mesh):
            self.model.layers[0].compile()
    """
    + _CONFIG,
)

MATCHES = (
    _NET
    + """
        def apply_fully_shard(self, config):
            for layer in self.model.layers:
                fully_shard(layer, **config)
                layer.compile()
            fully_shard(self.model, **config)
    """
    + _CONFIG,
    _NET
    + """
        def init_weights(self):
            self.finish(self.model)

        def finish(self, net):
            from dream_trainer.parallel.checkpointing import checkpoint_forward as recompute
            for layer in net.layers:
                recompute(layer)
    """
    + _CONFIG,
    """
    from torch import nn
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = nn.Linear(2, 2)
            checkpoint_wrapper(self.model)
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        behaviour = trainer.behaviour
        for name in (*BEFORE_MEMORY, *LATER):
            for trace in behaviour.named(name):
                for act, call in trace.calls():
                    hook = work_of(call, behaviour)
                    if hook not in SETTINGS or hook == name or act.constructing:
                        continue
                    if name == "configure_models" and hook in EARLY:
                        continue
                    if (name, hook) == ("apply_replicate", "apply_fully_shard"):
                        continue  # Over a mesh of replicas it averages the same gradients.
                    if call.name == "torch.compile" and not _is_of_model(call, trainer):
                        continue
                    yield from _told(trainer, name, hook, act, call)


def _is_of_model(call: Call, trainer: Trainer) -> bool:
    """Whether a function is given a module, and not some function to be compiled."""
    first = call.argument(0, "module", "model")
    if isinstance(first, Code) and first.kind == "function":
        return False
    if isinstance(first, Call) and first.last.endswith("Loss"):
        return False
    return touches_model(first, trainer.behaviour) or is_module(first, trainer.behaviour)


def _told(trainer: Trainer, name: str, hook: str, act: Act, call: Call) -> Iterator[Match]:
    match = Match(
        act.place,
        f"{name} does the work of {hook}: `{call.spot.callee.text}` is called out of order, "
        f"and whether or not a configuration asks for it.",
        f"Call it in {hook}, and ask for it with {SETTINGS[hook]}.",
        notes=act.notes,
        severity="warning" if name == "configure_models" and call.last in SWITCHES else None,
    )
    if name not in BEFORE_MEMORY[1:]:
        yield match
        return
    for config, certain in callers(trainer, name):
        yield match._replace(config=config.name, certain=certain)
