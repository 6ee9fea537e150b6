"""The current weights for processes besides the training."""

from pathlib import Path
from typing import TYPE_CHECKING

from ..checkpoint.export import Format
from ..checkpoint.snapshots import newest, publish, receive
from ..checkpoint.sources import require_safetensors
from ..configs.errors import is_count, refuse_unless
from .callback import Callback

if TYPE_CHECKING:
    from ..trainer import DreamTrainer

__all__ = ["WeightTransferCallback", "newest", "receive"]


class WeightTransferCallback(Callback):
    """Publishes the weights before the first step and every `every_n_steps` from then on.

    Motive: in reinforcement learning other processes generate with the newest weights, on
    another mesh. Sharded or cut, the models are written whole to `folder`, which all of them
    see; a version is there at once or not at all, and `latest.json` names the newest. The
    other side:

        version = receive(folder, model, known=version)

    Training waits for the write. `format="pt"` is one file that rank 0 puts together,
    "safetensors" a folder that ranks share out. The last `keep` versions stay: two at
    least, as one may be being read.
    """

    def __init__(
        self, folder: str, every_n_steps: int = 1, keep: int = 2, format: Format = "pt"
    ) -> None:
        refuse_unless(
            is_count(every_n_steps, 1), "every_n_steps", every_n_steps, "a whole number from 1"
        )
        refuse_unless(is_count(keep, 2), "keep", keep, "a whole number from 2")
        refuse_unless(format in ("pt", "safetensors"), "format", format, "pt or safetensors")
        if format == "safetensors":
            require_safetensors(Path(folder))
        self.folder, self.every_n_steps, self.keep = Path(folder), every_n_steps, keep
        self.format: Format = format

    def pre_fit(self, trainer: "DreamTrainer") -> None:
        self._publish(trainer)

    def on_boundary(self, trainer: "DreamTrainer") -> None:
        if trainer.global_step % self.every_n_steps == 0 and trainer.global_step != self.step:
            self._publish(trainer)

    def _publish(self, trainer: "DreamTrainer") -> None:
        self.step = publish(trainer, self.folder, self.format, self.keep).step
