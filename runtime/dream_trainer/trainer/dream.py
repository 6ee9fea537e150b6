"""The trainer that projects derive from."""

from typing import TYPE_CHECKING

from ..callbacks.callback import Callback
from ..configs import CheckpointParameters, DreamTrainerConfig
from .base import BaseTrainer

if TYPE_CHECKING:
    from ..loggers import Logger


class DreamTrainer(BaseTrainer):
    """`BaseTrainer` with a log, a progress bar and, where they are configured, checkpoints."""

    config: DreamTrainerConfig

    def __init__(self, config: DreamTrainerConfig) -> None:
        super().__init__(config)
        self.logged: dict[str, float] = {}
        """The newest value of everything that was logged."""

        self.loggers: list[Logger] = []
        """What takes the record of the run: on rank 0, while it runs."""

    def default_callbacks(self) -> list[Callback]:
        from .. import callbacks as known  # Each is imported when it is named.

        callbacks: list[Callback] = [
            known.ProgressBar(),
            known.MetricLoggerCallback(),
            known.LRLoggerCallback(),
            known.LoggerCallback(),
        ]
        parameters = self.config.checkpoint_parameters
        if parameters is not None and parameters.enable:
            callbacks.append(known.CheckpointCallback())
        replicas = self.config.fault_tolerance_parameters
        if replicas is not None and replicas.enable:
            callbacks.insert(0, known.FaultToleranceCallback())  # Others begin with its state.
        return callbacks

    def name_experiment(self) -> str:
        parameters = self.config.checkpoint_parameters
        return (parameters and parameters.resume) or super().name_experiment()

    def restore(self) -> None:
        parameters = self.config.checkpoint_parameters
        if parameters is None and not self.keeps_position:
            return
        from ..checkpoint.restore import restore

        parameters = parameters or CheckpointParameters()
        restore(self, parameters)
        if parameters.init_from is not None and not self.start_step:
            from ..checkpoint.weights import load_weights

            matched = load_weights(
                self,
                parameters.init_from,
                allow_missing=parameters.allow_missing,
                allow_unexpected=parameters.allow_unexpected,
                monitor=parameters.monitor,
                mode=parameters.resume_mode,
            )
            if self.world.is_rank_zero:
                print(f"init-from {parameters.init_from}: {matched}", flush=True)

    def logs_step(self, step: int) -> bool:
        every = self.config.logging_parameters.log_every_n_steps
        wanted = step == 1 or step % every == 0 or step == self.expected_steps
        return wanted and any(callback.logs for callback in self.callbacks)
