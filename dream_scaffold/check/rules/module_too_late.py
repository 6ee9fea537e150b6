"""A module is made after the models have got their memory.

Modules that `configure_models` assigns are sharded, replicated, materialised and filled. One
that is made later is none of it: it lies on the CPU or on one device, every rank draws other
weights for it, nobody averages its gradients, and inside a sharded model a plain weight meets
DTensors, which fails.

Bad:

    def init_weights(self):
        self.model.load(...)
        self.model.head = nn.Linear(512, 10)

Good:

    def configure_models(self):
        self.model = Net()
        self.model.head = nn.Linear(512, 10)

    def init_weights(self):
        self.model.head.reset_parameters()

How to fix: make it in `configure_models`, fill it in `init_weights`.
"""

from collections.abc import Iterator

from ..facts import (
    Act,
    Behaviour,
    Call,
    Code,
    Kind,
    Match,
    Path,
    Project,
    Severity,
    Trainer,
    model_of,
)

CODE = "DT305"
NAME = "module-too-late"
SEVERITY: Severity = "error"

HOOKS = ("init_weights", "configure_optimizers", "configure_schedulers", "training_step")

WITH_WEIGHTS = frozenset(
    {"Linear", "Bilinear", "Embedding", "EmbeddingBag", "LayerNorm", "RMSNorm", "GroupNorm"}
    | {"Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "BatchNorm1d"}
    | {"BatchNorm2d", "LSTM", "GRU", "RNN", "MultiheadAttention", "TransformerEncoder"}
    | {"TransformerEncoderLayer", "TransformerDecoder", "TransformerDecoderLayer"}
)

PASSES = (
    """
    from torch import nn

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = nn.Linear(2, 2)
            self.model.head = nn.Linear(2, 4)

        def init_weights(self):
            self.criterion = nn.CrossEntropyLoss()
            scratch = nn.Linear(2, 2)
            self.model.weight.copy_(scratch.weight)
    """,
    """
    from torch import nn

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = nn.Linear(2, 2)

        def init_weights(self):
            self.model.head.weight = self.model.embed.weight

        def configure_metrics(self):
            self.probe = nn.Linear(2, 2)
    """,
    """
    from torch import nn

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = nn.Linear(2, 2)

        def configure_optimizers(self):
            self.teacher = nn.Linear(2, 2).requires_grad_(False)
            return {self.model: make_optimizer(self.model)}
    """,
)

MATCHES = (
    """
    from transformers import AutoConfig, AutoModel

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = AutoModel.from_config(AutoConfig.from_pretrained("small"))

        def init_weights(self):
            self.model = AutoModel.from_pretrained("small")
    """,
    """
    from torch import nn

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = nn.Sequential(nn.Linear(2, 2))

        def init_weights(self):
            self.model.head = nn.Linear(2, 4).to("cuda")
    """,
    """
    import torch
    from torch import nn as layers

    class Critic(layers.Module):
        def __init__(self):
            super().__init__()
            self.score = layers.Linear(2, 1)

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = layers.Linear(2, 2)

        def configure_optimizers(self):
            self.add_critic()
            self.first = torch.optim.SGD(self.critic.parameters(), lr=0.1)
            return {self.model: make_optimizer(self.model), self.critic: self.first}

        def add_critic(self):
            self.critic = Critic()
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        behaviour = trainer.behaviour
        for trace in behaviour.named(*HOOKS):
            for act in trace.of_kind("set"):
                target = act.target
                if not isinstance(target, Path) or act.constructing:
                    continue
                if _has_weights(act, trainer):
                    yield Match(
                        act.place,
                        f"{trace.name} makes the module {target.dotted}, after the models were "
                        "sharded and got their memory.",
                        "Make it in configure_models, and fill it in init_weights.",
                        certain=_is_used(target, behaviour),
                        notes=act.notes,
                    )


def _has_weights(act: Act, trainer: Trainer) -> bool:
    """Whether a module with weights that may be trained is assigned."""
    made = act.term
    if made.mentions("requires_grad_", "eval"):
        return False
    while isinstance(made, Call) and made.last in ("to", "cuda", "train") and made.receiver:
        made = made.receiver
    if not isinstance(made, Call):
        return False
    if made.last in ("from_pretrained", "from_config"):
        return isinstance(act.target, Path) and act.target.last in trainer.behaviour.models
    if made.name.startswith("torch.nn."):
        return made.last in WITH_WEIGHTS or (
            made.last in ("Sequential", "ModuleList") and any(made.calls(*WITH_WEIGHTS))
        )
    is_class = isinstance(made.function, Code) and made.function.kind == "class"
    kind = _kind(act, trainer.behaviour) if is_class else None
    return kind is not None and bool(kind.mentioned & (WITH_WEIGHTS | {"Parameter"}))


def _kind(act: Act, behaviour: Behaviour) -> Kind | None:
    kind = behaviour.kinds.get(act.target.dotted) if isinstance(act.target, Path) else None
    return kind if kind is not None and kind.is_module else None


def _is_used(path: Path, behaviour: Behaviour) -> bool:
    """Whether it is part of a model, or given to an optimizer."""
    if model_of(path, behaviour) is not None:
        return True
    return any(
        act.term.reads(path.dotted)
        for trace in behaviour.named("configure_optimizers")
        for act in trace.acts
        if act.kind in ("call", "return")
    )
