"""A tracker is started by hand, on every rank.

`wandb.init()` in a hook or in `main` runs once for each process: eight ranks make eight runs, each
with the values of its own shard, and one that is resumed gets new ones. The runtime starts its
trackers on rank 0 alone, with the values of all ranks, and goes on with the same run.

Bad:

    def configure_models(self):
        wandb.init(project="lm")

Good:

    DreamTrainerConfig(logging_parameters=WandbLoggingParameters())
    DreamTrainerConfig(logging_parameters=LoggingParameters(tensorboard=True))

How to fix: choose the tracker in `logging_parameters`; values that the steps return are logged.
One that the runtime does not know belongs into a `RankZeroCallback`. See docs/callbacks.md.
"""

from collections.abc import Iterator

from ..facts import (
    Call,
    Foreign,
    Match,
    Project,
    Severity,
    guards_of_rank,
    on_rank_zero,
    reachable,
)

CODE = "DT703"
NAME = "tracker-by-hand"
SEVERITY: Severity = "warning"

STARTS = {
    "wandb": ("init",),
    "mlflow": ("start_run",),
    "neptune": ("init_run", "Run"),
    "comet_ml": ("Experiment", "start"),
    "aim": ("Run",),
    "swanlab": ("init",),
    "clearml": ("Task.init",),
    "tensorboardX": ("SummaryWriter",),
}
"""Package -> what starts a run of it; torch has a `SummaryWriter`, too."""

PASSES = (
    """
    import wandb

    class MyTrainer(Complete):
        def configure_models(self):
            self.model = make_model()
            if self.world.is_rank_zero:
                wandb.init(project="x")
    """,
    """
    import wandb

    from dream_trainer.callbacks import RankZeroCallback

    class Track(RankZeroCallback):
        def pre_fit(self, trainer):
            wandb.init(project="x")
    """,
    """
    import wandb

    class MyTrainer(Complete):
        def validation_step(self, batch, batch_idx):
            return {"image": wandb.Image(batch["image"])}
    """,
)

MATCHES = (
    """
    import wandb

    class MyTrainer(Complete):
        def configure_models(self):
            wandb.init(project="x")
            self.model = make_model()
    """,
    """
    from torch.utils.tensorboard import SummaryWriter as Writer

    from dream_trainer.callbacks import Callback

    class Track(Callback):
        def pre_fit(self, trainer):
            self.writer = Writer("runs")
    """,
    """
    import mlflow

    def main(config):
        with mlflow.start_run():
            Complete(config).fit()

    if __name__ == "__main__":
        cli(main, DreamTrainerConfig())
    """,
)


def check(project: Project) -> Iterator[Match]:
    for trace, kind, is_reached in reachable(project):
        if kind is not None and on_rank_zero(kind):
            continue
        for act, call in trace.calls():
            function = call.function
            if not isinstance(function, Foreign) or not _starts(function.name):
                continue
            if not any(guards_of_rank(act, trace)):
                yield Match(
                    act.place,
                    f"{call.name}() starts a run of its own on every rank.",
                    _remedy(call),
                    is_reached,
                    notes=act.notes,
                )


def _starts(name: str) -> bool:
    package, _, rest = name.partition(".")
    if package == "torch":
        return name.endswith(".SummaryWriter")
    return rest in STARTS.get(package, ())


def _remedy(call: Call) -> str:
    if call.name.startswith("wandb."):
        return "Set logging_parameters=WandbLoggingParameters()."
    if call.last == "SummaryWriter":
        return "Set logging_parameters=LoggingParameters(tensorboard=True)."
    return "Start it in a RankZeroCallback."
