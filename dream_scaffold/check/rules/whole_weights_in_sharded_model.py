"""Whole weights are put into a model whose weights are sharded.

By the time of `init_weights`, tensor parallelism and `fully_shard` have replaced the
parameters by DTensors, of which each rank holds a part. `load_state_dict` of a whole checkpoint
fails there (`got mixed torch.Tensor and DTensor`); a new `nn.Parameter`, or `assign=True`,
takes the DTensor's place, and the next forward fails, or the optimizer trains a tensor that
is not the model's.

Bad:

    def init_weights(self):
        self.model.load_state_dict(torch.load("base.pt"))
        self.model.head.bias = nn.Parameter(torch.zeros(10))

Good:

    def init_weights(self):
        self.model.init_weights()
        nn.init.zeros_(self.model.head.bias)

    # and the weights of base.pt, each rank reading its own part:
    CheckpointParameters(init_from="base.pt")           # or: train.py --init-from base.pt

How to fix: set weights in place, and load files with `--init-from`. By hand:
`set_model_state_dict` with `StateDictOptions(full_state_dict=True)`. See
docs/checkpointing.md.
"""

from collections.abc import Iterator

from ..facts import (
    Act,
    Behaviour,
    Call,
    Match,
    Path,
    Project,
    Severity,
    callers,
    is_conditional,
    is_module,
    model_of,
)

CODE = "DT310"
NAME = "whole-weights-in-sharded-model"
SEVERITY: Severity = "error"

SHARDED = ("state_dict", "get_model_state_dict", "get_state_dict")
"""What returns weights in the form that the model has them in."""

_TRAINER = """
    import torch
    from torch import nn
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = nn.Linear(2, 2)
"""

_FSDP = """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.FSDP(compile_model=False)
    )
"""

PASSES = (
    _TRAINER
    + """
        def init_weights(self):
            state = torch.load("base.pt")
            options = StateDictOptions(full_state_dict=True)
            set_model_state_dict(self.model, state, options=options)
            nn.init.zeros_(self.model.bias)
    """
    + _FSDP,
    _TRAINER
    + """
        def init_weights(self):
            self.model.load_state_dict(torch.load("base.pt"))

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.SINGLE_DEVICE(compile_model=False)
    )
    """,
    _TRAINER
    + """
        def init_weights(self):
            state = self.model.state_dict()
            torch.distributed.checkpoint.load(state, checkpoint_id="base")
            self.model.load_state_dict(state)
            self.scale = nn.Parameter(torch.zeros(1))
    """
    + _FSDP,
)

MATCHES = (
    _TRAINER
    + """
        def init_weights(self):
            self.model.load_state_dict(torch.load("base.pt", map_location="cpu"))
    """
    + _FSDP,
    _TRAINER
    + """
        def init_weights(self):
            self.fill(self.model)

        def fill(self, net):
            weights = torch.load("base.pt")
            net.bias = nn.Parameter(weights["bias"])
    """
    + _FSDP,
    _TRAINER
    + """
        def init_weights(self):
            from safetensors.torch import load_file
            self.model.load_state_dict(load_file("base.safetensors"), assign=True)

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters(tensor_parallel=2, compile_model=False)
    )
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        for trace in trainer.behaviour.named("init_weights"):
            for act in trace.of_kind("call", "set"):
                fault = _fault(act, trainer.behaviour)
                if fault is None:
                    continue
                text, help_, sure = fault
                for config, need in callers(trainer, "apply_fully_shard", "apply_tensor_parallel"):
                    yield Match(
                        act.place,
                        text,
                        help_,
                        certain=need and sure and not is_conditional(act),
                        config=config.name,
                        notes=act.notes,
                    )


def _fault(act: Act, behaviour: Behaviour) -> tuple[str, str, bool] | None:
    """What is wrong with an act, what to do instead, and whether it is certain."""
    if act.kind == "set":
        target = act.target
        if not isinstance(target, Path) or not isinstance(act.term, Call):
            return None
        if act.term.name not in ("torch.nn.Parameter", "torch.nn.parameter.Parameter"):
            return None
        if model_of(target, behaviour) is None or act.term.reads(target.dotted):
            return None
        text = f"`{act.spot.text}` is sharded, and a new nn.Parameter takes its place."
        return text, "Set weights in place: nn.init, or copy_ within torch.no_grad().", True
    call = act.term
    if not isinstance(call, Call) or call.last != "load_state_dict":
        return None
    given = call.argument(0, "state_dict")
    if given is None or not is_module(call.receiver, behaviour) or given.mentions(*SHARDED):
        return None
    whole = given.mentions("load", "load_file", "safe_open", "load_state_dict_from_url")
    text = f"`{call.spot.callee.text}()` gets full tensors for sharded parameters."
    remedy = (
        "Load them with --init-from, or with set_model_state_dict and "
        "StateDictOptions(full_state_dict=True)."
    )
    return text, remedy, whole
