"""Linear layers that multiply in FP8."""

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from ..checks.replicas import warn
from ..configs import RunError
from ..configs.errors import refuse_unless
from ..materialize import shortened
from .callback import Callback

if TYPE_CHECKING:
    from ..trainer import DreamTrainer

MULTIPLE = 16
"""What the sizes of an FP8 product are multiples of."""

RECIPES = ("tensorwise", "rowwise", "rowwise_with_gw_hp")


class Fp8Quantization(Callback):
    """Makes linear layers of the models torchao's `Float8Linear`, but for their weights.

    Motive: FP8 doubles the speed of large products, where every layer of it fits the hardware
    and the conversion comes first: after sharding it is too late, and an odd vocabulary fails
    in the backward pass. Layers whose sizes are no multiple of 16 on each tensor-parallel rank
    stay as they are, and a line says which. `exclude` are `fnmatch` patterns over names, with
    or without the model's attribute: the head and small layers often gain nothing.

    Weights, checkpoints and exports stay in their precision. `--no-fp8` leaves it out.
    `emulate=True` computes the same numbers on any device, slowly.
    """

    def __init__(
        self,
        recipe: Literal["tensorwise", "rowwise", "rowwise_with_gw_hp"] = "tensorwise",
        exclude: Sequence[str] = (),
        emulate: bool = False,
    ) -> None:
        refuse_unless(recipe in RECIPES, "recipe", recipe, " or ".join(RECIPES))
        self.recipe, self.exclude, self.emulate = recipe, tuple(exclude), emulate
        self.converted: list[str] = []
        self.skipped: dict[str, str] = {}
        """Name of a linear layer -> why it stays."""

    def post_configure_models(self, trainer: "DreamTrainer") -> None:
        if not self.emulate:
            raise_unless_fp8(trainer.world.device)
        float8 = _torchao()
        config = replace(
            float8.Float8LinearConfig.from_recipe_name(self.recipe),
            emulate=self.emulate,
            pad_inner_dim=True,  # For rows, of the last batch say, that are no multiple of 16.
        )
        self.converted, self.skipped = [], {}
        for root, model in trainer.named_models().items():

            def takes(module: nn.Linear, name: str, root: str = root) -> bool:
                return self._takes(f"{root}.{name}".rstrip("."), module, trainer.world.axes.tp)

            made = float8.convert_to_float8_training(model, config=config, module_filter_fn=takes)
            setattr(trainer, root, made)  # A model that is itself a linear layer is another one.
        self._report(trainer)

    def _takes(self, name: str, layer: nn.Linear, tp: int) -> bool:
        """Whether to convert a layer; notes it either way."""
        spellings = (name, name.partition(".")[2])
        odd = [
            f"{size} {getattr(layer, size)} is no multiple of {MULTIPLE}"
            + (f" on each of {tp} tp ranks" if tp > 1 else "")
            for size in ("in_features", "out_features")
            if getattr(layer, size) % (MULTIPLE * tp)
        ]
        if any(fnmatchcase(text, pattern) for pattern in self.exclude for text in spellings):
            self.skipped[name] = "excluded"
        elif odd:
            self.skipped[name] = odd[0]
        else:
            self.converted.append(name)
        return name not in self.skipped

    def _report(self, trainer: "DreamTrainer") -> None:
        reasons = [f"{name} ({why})" for name, why in self.skipped.items()]
        if not self.converted:
            told = f" to convert: {shortened(reasons, 3)}" if reasons else ""
            raise RunError(
                f"Fp8Quantization found no linear layer{told}. Leave it out (--no-fp8), or change "
                "the sizes or exclude."
            )
        if trainer.world.is_rank_zero:
            told = f", skipped {shortened(reasons)}" if reasons else ""
            print(f"fp8: {len(self.converted)} linear layers ({self.recipe}){told}", flush=True)
        if not trainer.config.device_parameters.compile_model and not self.emulate:
            warn(
                trainer.world,
                "FP8 without compilation is slower than bfloat16. Set compile_model=True.",
            )


def raise_unless_fp8(device: torch.device) -> None:
    """Raise `RunError` for a device that cannot multiply FP8."""
    what = f"a {device.type} device"
    if device.type == "cuda":
        capability = torch.cuda.get_device_capability(device)
        if capability >= ((9, 4) if torch.version.hip else (8, 9)):
            return
        what = f"{torch.cuda.get_device_name(device)} ({capability[0]}.{capability[1]})"
    raise RunError(
        f"Fp8Quantization needs CUDA capability 8.9 (H100, L40) or ROCm 9.4 (MI300), and this is "
        f"{what}. Leave it out (--no-fp8), or try its numbers: Fp8Quantization(emulate=True)."
    )


def _torchao() -> Any:
    try:
        return import_module("torchao.float8")
    except ImportError:
        raise RunError(
            "Fp8Quantization needs torchao. Install it (pip install torchao), or pass --no-fp8."
        ) from None
