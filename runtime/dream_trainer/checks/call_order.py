"""Whether all ranks call the same modules in the same order, for hunting a hang."""

from collections import Counter
from functools import partial
from typing import Any
from zlib import crc32

import torch
import torch.distributed as dist
from torch import nn

from ..configs import RunError
from ..seeding import NamedParts, clean
from ..world import World


class CallOrder:
    """Makes every module call wait until all ranks are about to call the same one.

    A rank that takes another branch is told before it enters the collective that would
    hang: the hooks stand before those of `fully_shard` and DDP. Slow; for a few steps.
    """

    def __init__(self, models: NamedParts, world: World) -> None:
        self.world = world
        self.step = 1
        self.names = {
            crc32(name.encode()): name
            for root, model in models
            for name in [clean(f"{root}.{path}".rstrip(".")) for path, _ in model.named_modules()]
        }
        self.names[crc32(b"backward")] = "backward"
        self.handles = [
            module.register_forward_pre_hook(
                partial(self._before, clean(f"{root}.{path}".rstrip("."))), prepend=True
            )
            for root, model in models
            for path, module in model.named_modules()
        ]

    def _before(self, name: str, module: nn.Module, inputs: Any) -> None:
        self.compare(name)

    def compare(self, name: str) -> None:
        """Raise `RunError` where a rank is about to call something else. All ranks take part."""
        codes = [torch.empty((), dtype=torch.int64) for _ in range(self.world.loss_size)]
        own = torch.tensor(crc32(name.encode()))
        dist.all_gather(codes, own, group=self.world.loss_group)
        called = [self.names.get(int(code), "another module") for code in codes]
        usual, _ = Counter(called).most_common(1)[0]
        if others := [(rank, name) for rank, name in enumerate(called) if name != usual]:
            listed = ", ".join(f"data rank {rank} called {name}" for rank, name in others)
            raise RunError(
                f"Step {self.step}: {listed} where others called {usual}. Call it on "
                "every rank, with a zero-weighted dummy input where there is nothing to do."
            )

    def close(self) -> None:
        """Leave the models as they were."""
        for handle in self.handles:
            handle.remove()
