"""The trained weights, in a form that others read."""

from pathlib import Path
from typing import TYPE_CHECKING

from ..checkpoint.agreement import together
from ..checkpoint.export import SHARD_BYTES, Format, Target, export_trained
from .callback import Callback

if TYPE_CHECKING:
    from ..trainer import DreamTrainer


class ExportCallback(Callback):
    """Writes the weights at the end of the run, as one `.pt` file or a folder of safetensors.

    Motive: a checkpoint is for going on; inference wants plain tensors under plain names, and
    gathering them by hand on a sharded or pipelined mesh hangs, or fills rank 0's memory.

    Names in safetensors are those of the trainer's `hugging_face_layout`. That `output` can
    be written is checked before training.
    """

    def __init__(
        self, output: str, format: Format = "pt", max_shard_bytes: int = SHARD_BYTES
    ) -> None:
        self.output, self.format, self.max_shard_bytes = Path(output), format, max_shard_bytes

    def post_setup(self, trainer: "DreamTrainer") -> None:
        what = f"Cannot export to {self.output}"
        together(trainer.world, self._target(trainer).raise_if_impossible, what)

    def post_fit(self, trainer: "DreamTrainer") -> None:
        if trainer.exit_code:  # Stopped before its end, to go on later.
            return
        export = export_trained(trainer, self._target(trainer))
        if trainer.world.is_rank_zero:
            print(f"exported {export}")

    def _target(self, trainer: "DreamTrainer") -> Target:
        layout = trainer.hugging_face_layout() if self.format == "safetensors" else None
        return Target(
            output=self.output,
            format=self.format,
            layout=layout,
            shard_bytes=self.max_shard_bytes,
        )
