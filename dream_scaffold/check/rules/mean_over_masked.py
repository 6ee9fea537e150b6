"""A mean over tokens that are not masked, averaged again over batches or ranks.

Batches and ranks hold different numbers of tokens that count. A mean of means weighs the
tokens of a short batch more: with accumulation or data parallelism the gradient is not
that of the mean over all tokens. It is exact only where all batches count alike.

Bad:

    loss = F.cross_entropy(logits, labels, ignore_index=-100)
    self.backward(loss)

Good:

    loss = F.cross_entropy(logits, labels, ignore_index=-100, reduction="sum")
    self.backward(loss, num_items=(labels != -100).sum())

How to fix: pass the sum, and what it counts; the runtime divides by the items of the
whole window on all ranks.
"""

from collections.abc import Iterator

from ..facts import Call, Configuration, Match, Project, Severity, Trace, constant

CODE = "DT512"
NAME = "mean-over-masked"
SEVERITY: Severity = "info"

_HEAD = """
    import torch.nn.functional as F

    class MyTrainer(Complete):
        def apply_replicate(self, dp_replicate_mesh):
            replicate(self.model, dp_replicate_mesh)

        def training_step(self, batch, batch_idx):
            logits, labels = self.model(batch), batch["labels"]
"""

_DDP = """
    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.DDP(compile_model=False)
    )
"""

PASSES = (
    _HEAD
    + """
            loss = F.cross_entropy(logits, labels, ignore_index=-100, reduction="sum")
            self.backward(loss, num_items=batch["count"])
            return {"loss": loss}
    """
    + _DDP,
    _HEAD
    + """
            loss = F.cross_entropy(logits, labels)
            self.backward(loss)
            return {"loss": loss}
    """
    + _DDP,
    _HEAD
    + """
            loss = F.cross_entropy(logits, labels, ignore_index=-100)
            self.backward(loss)
            return {"loss": loss}

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.SINGLE_DEVICE(compile_model=False)
    )
    """,
)

MATCHES = (
    _HEAD
    + """
            return self.learn(F.nll_loss(logits, labels, ignore_index=0, reduction="mean"))

        def learn(self, loss):
            self.backward(loss)
            return {"loss": loss}

    config = DreamTrainerConfig(
        device_parameters=DeviceParameters.SINGLE_DEVICE(compile_model=False),
        training_parameters=TrainingParameters(gradient_accumulation_steps=4),
    )
    """,
    _HEAD
    + """
            loss = F.cross_entropy(logits, labels, ignore_index=-100)
            self.backward(loss)
            return {"loss": loss}
    """
    + _DDP,
)


def check(project: Project) -> Iterator[Match]:
    for trainer in project.trainers:
        configs = [config for config in trainer.configs if _averages(config)]
        for trace in trainer.behaviour.named("training_step") if configs else ():
            if _counts_items(trace):
                continue
            for act, call in trace.calls("cross_entropy", "nll_loss"):
                if _is_masked_mean(call):
                    yield Match(
                        act.place,
                        "A mean over what is not masked is averaged again over batches or ranks: "
                        "tokens of short ones weigh more.",
                        'Use reduction="sum", and self.backward(loss, num_items=...).',
                        config=configs[0].name,
                        notes=act.notes,
                    )


def _averages(config: Configuration) -> bool:
    window = config.value("training_parameters.gradient_accumulation_steps")
    several = isinstance(window, int) and window > 1
    return several or bool(config.is_wide("dp_replicate", "dp_shard"))


def _counts_items(trace: Trace) -> bool:
    calls = [call for _, call in trace.calls("backward") if call.name == "self.backward"]
    return any("num_items" in call.keywords or len(call.arguments) > 1 for call in calls)


def _is_masked_mean(call: Call) -> bool:
    reduction = call.keywords.get("reduction")
    mean = reduction is None or constant(reduction) == "mean"
    return call.is_foreign("torch") and mean and "ignore_index" in call.keywords
