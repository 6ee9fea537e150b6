"""The trainer that projects derive from."""

from ..callbacks import Callback, LoggerCallback, ProgressBar
from ..configs import DreamTrainerConfig
from .base import BaseTrainer


class DreamTrainer(BaseTrainer):
    """`BaseTrainer` with a log and a progress bar."""

    config: DreamTrainerConfig

    def __init__(self, config: DreamTrainerConfig) -> None:
        super().__init__(config)
        self.logged: dict[str, float] = {}
        """The newest value of everything that was logged."""

    def default_callbacks(self) -> list[Callback]:
        return [ProgressBar(), LoggerCallback()]

    def logs_step(self, step: int) -> bool:
        every = self.config.logging_parameters.log_every_n_steps
        wanted = step == 1 or step % every == 0 or step == self.expected_steps
        return wanted and any(callback.logs for callback in self.callbacks)
