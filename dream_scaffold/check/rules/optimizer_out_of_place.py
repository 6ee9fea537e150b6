"""An optimizer or scheduler is built outside the hook that is for it.

Sharding, materialisation and compilation put other tensors in the place of those that
`configure_models` made. An optimizer built before holds the old ones: its `step()` changes
nothing that the model uses, and the loss does not move. One that is built within a step
forgets its moments every time. The runtime also scales, clips, saves and restores only
what `configure_optimizers` and `configure_schedulers` return.

Bad:

    def configure_models(self):
        self.model = Net()
        self.optimizer = torch.optim.AdamW(self.model.parameters())

Good:

    def configure_models(self):
        self.model = Net()

    def configure_optimizers(self):
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        return {self.model: self.optimizer}

How to fix: build optimizers in `configure_optimizers`, schedulers there or in
`configure_schedulers`.
"""

from collections.abc import Iterator

from ..facts import (
    BEFORE_MEMORY,
    Act,
    Behaviour,
    Call,
    Match,
    Project,
    Severity,
)

CODE = "DT302"
NAME = "optimizer-out-of-place"
SEVERITY: Severity = "error"

PASSES = (
    """
    import torch
    from torch.optim.lr_scheduler import LambdaLR

    class MyTrainer(Complete):
        def configure_optimizers(self):
            return self.build(torch.optim.AdamW)

        def build(self, make):
            self.optimizer = make(self.model.parameters(), lr=1e-3)
            self.scheduler = LambdaLR(self.optimizer, lambda step: 1.0)
            return {self.model: self.optimizer}
    """,
    """
    from functools import partial
    from torch.optim import AdamW, Optimizer

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = make_model()
            self.make_optimizer = partial(AdamW, lr=1e-3)
    """,
    """
    import torch

    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            latent = torch.zeros(4, requires_grad=True)
            inner = torch.optim.SGD([latent], lr=0.1)
            return {"loss": self.model(batch)}
    """,
)

MATCHES = (
    """
    import torch

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = make_model()
            self.optimizer = torch.optim.AdamW(self.model.parameters())
    """,
    """
    from torch.optim import SGD as Descent
    from torch.optim.lr_scheduler import CosineAnnealingLR

    class MyTrainer(Complete):
        def init_weights(self):
            self.prepare()

        def prepare(self):
            self.optimizer = Descent([{"params": self.model.parameters()}], lr=0.1)
            self.scheduler = CosineAnnealingLR(self.optimizer, 10)
    """,
    """
    import torch

    class MyTrainer(Complete):
        def training_step(self, batch, batch_idx):
            optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            return {"loss": self.model(batch)}
    """,
)

EARLY = ("__init__", *BEFORE_MEMORY, "init_weights")
LATE = ("configure_schedulers", "configure_dataloaders", "training_step", "validation_step")


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        behaviour = trainer.behaviour
        for trace in behaviour.named(*EARLY, *LATE):
            for act, call in trace.calls():
                kind = _kind(call)
                if kind is None or not _is_of_model(act, call, behaviour):
                    continue
                if kind == "scheduler" and trace.name == "configure_schedulers":
                    continue
                home = "configure_optimizers" if kind == "optimizer" else "configure_schedulers"
                why = (
                    "it would hold other tensors than the ones that are trained"
                    if trace.name in EARLY
                    else "the runtime does not save it, nor restore it"
                )
                yield Match(
                    act.place,
                    f"`{call.spot.callee.text}` is built in {trace.name}: {why}.",
                    f"Build it in {home}, and return it there.",
                    notes=act.notes,
                )


def _kind(call: Call) -> str | None:
    """What a call builds of torch's."""
    if not call.is_foreign("torch", "torchao", "bitsandbytes", "apex"):
        return None
    package, _, name = call.name.rpartition(".")
    if not name[:1].isupper():
        return None
    if package.startswith("torch.optim.lr_scheduler"):
        return "scheduler"
    if package.startswith("torch.optim.swa_utils"):
        return None
    return "optimizer" if ".optim" in package else None


def _is_of_model(act: Act, call: Call, behaviour: Behaviour) -> bool:
    """Whether it is built for a model, or for an optimizer that is the trainer's."""
    models = [model.path for model in behaviour.models.values()]
    first = call.argument(0, "params", "optimizer")
    if first is None:
        return False
    if _kind(call) == "scheduler":
        return first.reads("self") or first.reads(*models)
    return first.reads(*models)
