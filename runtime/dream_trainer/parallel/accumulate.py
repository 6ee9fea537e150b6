"""Gradient synchronisation, switched off for all but the last batch of a window."""

from collections.abc import Callable, Iterable
from functools import partial

from torch import nn
from torch.nn.parallel import DistributedDataParallel


class GradientSync:
    """Switches the averaging of gradients over ranks on and off for all models."""

    def __init__(self, models: Iterable[nn.Module]) -> None:
        self.is_on = True
        self.switches: list[Callable[[bool], None]] = []
        for model in models:
            if isinstance(model, DistributedDataParallel):
                self.switches.append(partial(setattr, model, "require_backward_grad_sync"))
            elif callable(switch := getattr(model, "set_requires_gradient_sync", None)):
                self.switches.append(switch)

    def set(self, on: bool) -> None:
        """Average the gradients of the next backward pass, or keep this rank's own."""
        if on != self.is_on:
            self.is_on = on
            for switch in self.switches:
                switch(on)
