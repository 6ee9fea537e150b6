"""A sharded model is copied.

After `apply_fully_shard` a model cannot be copied: `copy.deepcopy(self.model)` and
`AveragedModel(self.model)` fail with "FSDP does not support deepcopy". A copy made before
sharding does not fit either, since each rank then averages whole weights with parts of them.

Bad:

    def configure_optimizers(self):
        self.average = copy.deepcopy(self.model)

Good:

    DreamTrainerConfig(callbacks=[ProgressBar(), LoggerCallback(), EMACallback(decay=0.999)])

How to fix: for a running average use `EMACallback`, which averages the parts that each rank holds.
A frozen teacher is a second model: make it in `configure_models` and shard it like the first.
See docs/callbacks.md.
"""

from collections.abc import Iterator

from ..facts import (
    Configuration,
    Match,
    Project,
    Severity,
    Trainer,
    hooks_of,
    is_at,
)

CODE = "DT610"
NAME = "copied-model"
SEVERITY: Severity = "error"

_MODEL = """
    import copy

    from torch import nn
    from torch.distributed.fsdp import fully_shard
    from torch.optim.swa_utils import AveragedModel

    from dream_trainer.callbacks import Callback

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = nn.Linear(2, 2)

        def apply_fully_shard(self, config):
            fully_shard(self.model, **config)
"""

_FSDP = """
    config = DreamTrainerConfig(device_parameters=DeviceParameters.FSDP(compile_model=False))
"""

PASSES = (
    _MODEL
    + """
        def init_weights(self):
            self.average = copy.deepcopy(self.model)

    config = DreamTrainerConfig(device_parameters=DeviceParameters.SINGLE_DEVICE())
    """,
    _MODEL
    + """
        def init_weights(self):
            self.start = copy.deepcopy(self.model.state_dict())
            self.options = copy.deepcopy(self.config)
    """
    + _FSDP,
    _MODEL.replace(
        "self.model = nn.Linear(2, 2)",
        "self.model = nn.Linear(2, 2)\n            self.teacher = copy.deepcopy(self.model)",
    )
    + _FSDP,
)

MATCHES = (
    _MODEL
    + """
        def init_weights(self):
            self.average = copy.deepcopy(self.model)
    """
    + _FSDP,
    _MODEL
    + """
    class Average(Callback):
        def post_setup(self, trainer):
            self.average = AveragedModel(trainer.model)
    """
    + _FSDP,
    _MODEL
    + """
        def configure_optimizers(self):
            from copy import deepcopy as clone

            model = self.model
            self.average = clone(model).eval()
            return {self.model: make_optimizer(self.model)}
    """
    + _FSDP,
)

COPIES = ("copy.deepcopy", "torch.optim.swa_utils.AveragedModel")

BEFORE = frozenset(
    {"__init__", "__post_init__", "configure_models", "apply_pipeline_parallel", "pre_configure"}
    | {"apply_tensor_parallel", "apply_activation_checkpointing", "apply_compile"}
    | {"apply_fully_shard", "post_configure_models"}
)
"""What runs while the models are whole."""


def check(project: Project) -> Iterator[Match]:
    config = next((c for t in project.trainers if (c := _sharded(t)) is not None), None)
    if config is None:
        return
    for trace, models in hooks_of(project):
        if trace.name in BEFORE:
            continue
        for act, call in trace.calls("deepcopy", "AveragedModel"):
            if call.name in COPIES and is_at(call.argument(0, "x", "model"), models):
                yield Match(
                    act.place,
                    f"`{call.spot.text}` copies a sharded model: FSDP does not support that.",
                    "Use EMACallback for an average; make another model in configure_models.",
                    config=config.name,
                    notes=act.notes,
                )


def _sharded(trainer: Trainer) -> Configuration | None:
    """A configuration under which the models are surely sharded."""
    found = trainer.behaviour.traces.get("apply_fully_shard")
    if found is None:
        return None
    return next((c for c in trainer.configs if c.hooks["apply_fully_shard"] == "required"), None)
