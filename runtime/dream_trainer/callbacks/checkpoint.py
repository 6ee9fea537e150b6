"""Saving a run: when, and what is told of it."""

import sys
import time
from typing import TYPE_CHECKING, Any

from ..checkpoint.manifest import Manifest, folder_of, name_of
from ..checkpoint.restore import COUNTERS
from ..checkpoint.saving import Save, Saver, reason
from ..checkpoint.state import model_state
from ..checkpoint.stopping import Requests, exit_code
from ..checkpoint.store import Store
from ..checks.replicas import warn_of_one_rank_kept
from ..configs import CheckpointParameters, RunError
from .callback import Callback

if TYPE_CHECKING:
    from ..trainer import DreamTrainer


INTERRUPT_SECONDS = 10
"""How long a run that ends by an exception waits for the save under way."""


class CheckpointCallback(Callback):
    """Saves the whole state of the run as `CheckpointParameters` say, and when it must stop.

    Motive: no step is ever lost. A checkpoint is published only once it is whole, the newest
    one always stays, and a storage that fails costs a warning, not the run. SIGTERM, SIGUSR1
    and the time limit end the run after the step or validation batch under way, saved, with
    exit code 75.
    """

    behind = False
    """Whether training goes on while files are written."""

    def __init__(self) -> None:
        self.saver: Saver | None = None
        self.epochs = self.validations = 0
        self.saved_step = -1
        self.known: dict[str, float] = {}
        self.is_interrupted = self.has_saved = False

    def pre_configure(self, trainer: "DreamTrainer") -> None:
        self.parameters = trainer.config.checkpoint_parameters or CheckpointParameters()
        every, limit = (
            self.parameters.checkpoint_every_n_minutes,
            self.parameters.time_limit_minutes,
        )
        self.requests = Requests(trainer.world, limit, every)
        if self.parameters.enable:
            self.requests.listen()  # Already: set-up can take long, and a stop must not be lost.

    def post_setup(self, trainer: "DreamTrainer") -> None:
        if self.parameters.enable:
            store = Store(folder_of(self.parameters.root_dir, trainer.experiment))
            self.saver = Saver(trainer.world, store, self.parameters, self.behind)
            trainer.keeps_position = True

    def pre_fit(self, trainer: "DreamTrainer") -> None:
        self.saved_step = trainer.start_step or -1

    def post_validation_step(
        self, trainer: "DreamTrainer", result: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        if self.saver is not None:
            self._heed(trainer, self.requests.poll().stop)

    def post_validation_epoch(self, trainer: "DreamTrainer", result: dict[str, float]) -> None:
        if not trainer.is_sanity_check:
            self.validations += 1
            self.known |= result

    def post_epoch(self, trainer: "DreamTrainer") -> None:
        self.epochs += 1

    def on_boundary(self, trainer: "DreamTrainer") -> None:
        if self.saver is None:
            return
        if self.saver.is_done():
            self._conclude(self.saver.wait())
        agreed = self.requests.poll()
        self._heed(trainer, agreed.stop)
        if trainer.is_stopping or self._is_due(trainer) or agreed.save:
            self._save(trainer)

    def post_fit(self, trainer: "DreamTrainer") -> None:
        if self.saver is None:
            return
        self._save(trainer)
        self._conclude(self.saver.wait())
        self.requests.close()
        self.saver.close()

    def on_interrupt(self, trainer: "DreamTrainer") -> None:
        if self.saver is not None:
            self.is_interrupted = True
            self._conclude(self.saver.wait(INTERRUPT_SECONDS))
            self.saver.join_pruning(INTERRUPT_SECONDS)

    def _is_due(self, trainer: "DreamTrainer") -> bool:
        every = self.parameters
        steps, validations = every.checkpoint_every_n_steps, every.checkpoint_every_n_val_epochs
        if steps and trainer.global_step % steps == 0:
            return True
        if validations and self.validations >= validations:
            return True
        return bool(self.epochs and every.train_epochs and trainer.epoch % every.train_epochs == 0)

    def _save(self, trainer: "DreamTrainer") -> None:
        """Save, unless this very step has been."""
        if self.saver is None or not trainer.global_step:
            return
        self._conclude(self.saver.wait())
        # Rank 0 publishes, and so it knows: another may have lost patience.
        if trainer.world.broadcast(self.saved_step) == trainer.global_step:
            return
        if not self.has_saved and trainer.config.training_parameters.startup_checks:
            warn_of_one_rank_kept(model_state(trainer), trainer.world)
        self.has_saved = True
        self.epochs = self.validations = 0
        self.saved_step = trainer.global_step
        self._conclude(self.saver.save(trainer, self._manifest(trainer)))
        self.requests.saved()

    def _manifest(self, trainer: "DreamTrainer") -> Manifest:
        world = trainer.world
        progress: dict[str, Any] = {name: getattr(trainer, name) for name in COUNTERS}
        return Manifest(
            step=trainer.global_step,
            epoch=trainer.epoch,
            experiment=trainer.experiment,
            created=time.time(),
            world_size=world.world_size,
            axes=world.axes.sizes,
            metrics=trainer.logged | self.known,
            progress=progress | {"dp_size": world.dp_size},
        )

    def _conclude(self, save: Save | None) -> None:
        """Tell what became of a save; stop the run where it is to stop over it."""
        if save is None or self.saver is None:
            return
        step, store = save.manifest.step, self.saver.store
        if save.error is None:
            self._say(f"checkpoint: step {step} in {store.url(name_of(step))}")
            return
        if self.saved_step == step:
            self.saved_step = -1  # It may be tried again.
        why = reason(save.error)
        text = f"step {step} could not be saved, the previous checkpoint stays: {why}"
        if self.parameters.on_failed_save == "stop" and not self.is_interrupted:
            raise RunError(text)
        self._say(f"warning: {text}")

    def _heed(self, trainer: "DreamTrainer", stop: str) -> None:
        if stop and not trainer.is_stopping:
            trainer.is_stopping, trainer.exit_code = True, exit_code()
            self._say(f"{stop}: saving step {trainer.global_step} and stopping")

    def _say(self, text: str) -> None:
        if self.saver is not None and self.saver.world.is_rank_zero:
            stream = sys.stderr if text.startswith("warning") else sys.stdout
            print(text, file=stream, flush=True)


class AsyncCheckpointCallback(CheckpointCallback):
    """`CheckpointCallback` that holds training up only for a copy to host memory.

    Motive: writing takes longer than a step. One save is under way at a time; the next one,
    and the end of the run, wait for it.
    """

    behind = True
