"""Weights are set or loaded where tensors have shapes, but no memory.

`configure_models` runs on the meta device, so that no rank ever holds a whole model. What is
written there is lost: `nn.init`, `load_state_dict` and `copy_` do nothing on a meta tensor,
mostly without a word, and training starts from whatever `init_weights` fills in. Runs have
trained from random weights for days like this.

Bad:

    def configure_models(self):
        self.model = Net()
        self.model.load_state_dict(torch.load("base.pt"))

Good:

    def configure_models(self):
        self.model = Net()

    def init_weights(self):
        self.model.apply(init)

How to fix: move it to `init_weights`, where memory is real. Weights of a checkpoint, a `.pt`
file or a Hugging Face folder: `--init-from`, or `checkpoint_parameters.init_from`, which
works on any mesh (docs/checkpointing.md); a model of transformers: `from_config` here.
"""

import re
from collections.abc import Iterator

from ..facts import (
    Act,
    Attribute,
    Behaviour,
    Call,
    Constant,
    Match,
    Path,
    Project,
    Severity,
    Term,
    is_module,
    is_on_cpu,
    model_of,
)

CODE = "DT301"
NAME = "weights-on-meta"
SEVERITY: Severity = "error"

FILLS = frozenset(
    {"normal_", "uniform_", "fill_", "zero_", "copy_", "trunc_normal_", "xavier_uniform_"}
    | {"kaiming_uniform_", "kaiming_normal_", "xavier_normal_", "mul_", "add_", "div_"}
    | {"exponential_", "bernoulli_", "clamp_", "data.copy_"}
)
"""Methods that write to a tensor."""

_NO_MODEL = re.compile(r"(Config|Tokenizer|TokenizerFast|Processor|Extractor|Adapter)$")
_MODEL = re.compile(r"Model|For[A-Z]|LMHead|Net")

_NET = """
    import torch
    from torch import nn
    from torch.nn import init as initial

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(16, 8)
            self.head = nn.Linear(8, 16)
            nn.init.zeros_(self.head.bias)
            self.head.weight = self.embed.weight

        def reset(self):
            initial.normal_(self.embed.weight)
"""

PASSES = (
    _NET
    + """
    class MyTrainer(Complete):
        def configure_models(self):
            self.model = Net()
            self.model.requires_grad_(True)

        def init_weights(self):
            self.model.reset()
            self.model.load_state_dict(torch.load("base.pt"))
    """,
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    class MyTrainer(Complete):
        def configure_models(self):
            config = AutoConfig.from_pretrained("small")
            self.tokenizer = AutoTokenizer.from_pretrained("small")
            self.model = AutoModelForCausalLM.from_config(config)
    """,
    _NET
    + """
    class MyTrainer(Complete):
        def configure_models(self):
            with torch.device("cpu"):
                self.teacher = Net()
                self.teacher.load_state_dict(torch.load("teacher.pt"))
            self.model = Net()
            table = torch.zeros(3)
            table.fill_(1.0)
    """,
)

MATCHES = (
    _NET
    + """
    def fill(module):
        if hasattr(module, "weight"):
            nn.init.normal_(module.weight)

    class MyTrainer(Complete):
        def configure_models(self):
            net = Net()
            net.apply(fill)
            self.model = net
    """,
    _NET
    + """
    class MyTrainer(Complete):
        def configure_models(self):
            self.model = Net()
            self.model.reset()
    """,
    _NET
    + """
    class MyTrainer(Complete):
        def configure_models(self):
            self.model = self.build(Net())

        def build(self, net):
            self.model = net
            state = torch.load("base.pt", map_location="cpu")
            self.model.load_state_dict(state["model"])
            return self.model
    """,
    _NET
    + """
    def fill(module):
        if isinstance(module, nn.Linear):
            module.weight.data.normal_(0, 0.02)

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = Net()
            self.model.apply(fill)
    """,
    """
    from transformers import AutoModelForCausalLM as Auto

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = Auto.from_pretrained("small")
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        behaviour = trainer.behaviour
        for trace in behaviour.named("configure_models"):
            again: set[object] | None = None
            for act in trace.of_kind("call", "set"):
                what = _lost(act, behaviour)
                if what is None or is_on_cpu(act):
                    continue
                if again is None:
                    again = {a.place for t in behaviour.named("init_weights") for a in t.acts}
                yield Match(
                    act.place,
                    f"configure_models {what} on the meta device, where there is no memory: the "
                    "values are lost.",
                    "Move it to init_weights, or load weights with --init-from.",
                    notes=act.notes,
                    severity="warning" if act.place in again else None,
                )


def _lost(act: Act, behaviour: Behaviour) -> str | None:
    """What an act does to weights that have no memory yet."""
    if act.kind == "set":
        target = act.target
        is_data = isinstance(target, Path) and target.last == "data"
        written = is_data and not act.constructing and model_of(target, behaviour)
        return f"sets `{act.spot.text}`" if written else None
    call = act.term
    if not isinstance(call, Call):
        return None
    if call.last == "from_pretrained":
        return "loads a pretrained model" if _makes_model(call.name) else None
    if call.last in ("load_state_dict", "load_model"):
        loaded = call.receiver if call.last == "load_state_dict" else call.argument(0, "model")
        return "loads weights" if is_module(loaded, behaviour) else None
    if call.keywords and call.is_foreign("timm", "torchvision"):
        given = call.keywords.get("pretrained") or call.keywords.get("weights")
        is_off = isinstance(given, Constant) and not given.value
        return "loads a pretrained model" if given is not None and not is_off else None
    if act.constructing:
        return None
    if call.name.startswith("torch.nn.init."):
        first = call.argument(0, "tensor")
        weight = _is_weight(first, behaviour) or _is_applied(act, behaviour)
        return "fills weights" if weight else None
    if call.last in FILLS and not call.is_foreign():
        return "fills weights" if _is_weight(call.receiver, behaviour) else None
    return None


def _is_applied(act: Act, behaviour: Behaviour) -> bool:
    """Whether a function does it that is applied to every module of a new model."""
    return any(
        guard.kind == "callback"
        and isinstance(guard.test, Call)
        and guard.test.last == "apply"
        and is_module(guard.test.receiver, behaviour)
        for guard in act.guards
    )


def _is_weight(term: Term | None, behaviour: Behaviour) -> bool:
    """Whether a term is a tensor of a model, or an element of its parameters."""
    while isinstance(term, Attribute):
        term = term.of
    if isinstance(term, Path):
        return model_of(term, behaviour) is not None and term.dotted.count(".") > 1
    return (
        term is not None
        and term.mentions("parameters", "named_parameters", "buffers")
        and any(term.reads(model.path) for model in behaviour.models.values())
    )


def _makes_model(name: str) -> bool:
    """Whether `from_pretrained` of a class makes a model: a tokenizer has no weights."""
    owner = name.rpartition(".")[0].rpartition(".")[2]
    return bool(_MODEL.search(owner)) and not _NO_MODEL.search(owner)
