"""Starting parts of a model from what was trained elsewhere."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..checkpoint.weights import load_weights
from .callback import Callback

if TYPE_CHECKING:
    from ..trainer import DreamTrainer


class LoadPartialCheckpointCallback(Callback):
    """Fills some of the weights, before training begins, from a checkpoint or a file.

    Motive: an encoder is pretrained, the rest begins anew. `load_state_dict(strict=False)`
    says nothing when it fills nothing; here every pattern has to fit something, everything
    that the patterns choose has to be there, and a line says how much it was.

    `source` is what `load_weights` takes. `include` and `exclude` are `fnmatch` patterns over
    names in the source, and `rename` maps their prefixes to the trainer's:
    `include=("encoder.*",), rename={"encoder": "backbone"}`.
    """

    def __init__(
        self,
        source: str,
        include: Sequence[str] = ("*",),
        exclude: Sequence[str] = (),
        rename: Mapping[str, str] | None = None,
        allow_missing: Sequence[str] = (),
        allow_unexpected: Sequence[str] = (),
    ) -> None:
        self.source = source
        self.include, self.exclude, self.rename = include, exclude, rename
        self.allow_missing, self.allow_unexpected = allow_missing, allow_unexpected

    def pre_fit(self, trainer: "DreamTrainer") -> None:
        if trainer.start_step:  # A run that goes on has trained them since.
            return
        matched = load_weights(
            trainer,
            self.source,
            include=self.include,
            exclude=self.exclude,
            rename=self.rename,
            allow_missing=self.allow_missing,
            allow_unexpected=self.allow_unexpected,
            purpose=type(self).__name__,
        )
        if trainer.world.is_rank_zero:
            print(f"{self.source}: {matched}")
