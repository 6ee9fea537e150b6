"""Random streams: one for each data rank, and where each of them is."""

import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import torch
from torch import Tensor


def seed_everything(seed: int) -> None:
    """Seed Python, torch on every device and, where it is loaded, numpy."""
    random.seed(seed)
    torch.manual_seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed % 2**32)


@dataclass(frozen=True)
class RandomState:
    """This rank's random streams at one moment."""

    python: Any
    numpy: Any
    cpu: Tensor
    device: Tensor | None
    generators: tuple[Tensor, ...]

    @classmethod
    def capture(
        cls, device: torch.device | None = None, generators: Sequence[torch.Generator] = ()
    ) -> "RandomState":
        """Where Python, numpy, the CPU, `device` and `generators` are."""
        numpy = sys.modules.get("numpy")
        is_other = device is not None and device.type != "cpu"
        return cls(
            random.getstate(),
            numpy.random.get_state() if numpy else None,
            torch.get_rng_state(),
            torch.get_device_module(device).get_rng_state() if is_other else None,
            tuple(generator.get_state() for generator in generators),
        )

    def restore(
        self, device: torch.device | None = None, generators: Sequence[torch.Generator] = ()
    ) -> None:
        """Go on from there. What was not captured stays as it is."""
        random.setstate(self.python)
        if self.numpy is not None and (numpy := sys.modules.get("numpy")):
            numpy.random.set_state(self.numpy)
        torch.set_rng_state(self.cpu)
        if self.device is not None and device is not None and device.type != "cpu":
            torch.get_device_module(device).set_rng_state(self.device)
        for generator, state in zip(generators, self.generators, strict=False):
            generator.set_state(state)


def stream_seed(seed: int, coordinate: Mapping[str, int], axes_sizes: Mapping[str, int]) -> int:
    """The seed of a rank's dropout: equal over tp, different over dp, cp and pp."""
    index = 0
    for axis in ("pp", "dp_replicate", "dp_shard", "cp"):
        index = index * axes_sizes[axis] + coordinate[axis]
    return seed if index == 0 else crc32(f"{seed}/{index}".encode())
