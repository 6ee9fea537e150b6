"""Gradient synchronisation, switched off for all but the last batch of a window."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


class GradientSync:
    """Switches the averaging of gradients over ranks on and off for all models."""

    def __init__(self, models: Iterable[nn.Module]) -> None:
        self.is_on = True
        self.group: dist.ProcessGroup | None = None
        self.across: Callable[[Sequence[Tensor]], None] | None = None
        """What averages over replica groups, once the gradients are this group's."""

        self.switches: dict[nn.Module, Callable[[bool], None]] = {}
        for model in models:
            if isinstance(model, DistributedDataParallel):
                self.switches[model] = partial(setattr, model, "require_backward_grad_sync")
            elif callable(switch := getattr(model, "set_requires_gradient_sync", None)):
                self.switches[model] = switch

    def average_by_hand(self, group: dist.ProcessGroup) -> None:
        """Leave the averaging to `average`: a pipeline's many backward passes confuse DDP's."""
        self.set(False)
        self.switches.clear()
        self.group = group

    def average(self, gradients: Sequence[Tensor]) -> None:
        """Average the gradients of a window, where the models do not do so themselves."""
        if self.group is not None:
            for gradient in gradients:
                dist.all_reduce(gradient, group=self.group)
            torch._foreach_div_(list(gradients), self.group.size())

    def set(self, on: bool) -> None:
        """Average the gradients of the next backward pass, or keep this rank's own."""
        if on != self.is_on:
            self.is_on = on
            for switch in self.switches.values():
                switch(on)

    @contextmanager
    def frozen(self, models: Sequence[nn.Module]) -> Iterator[None]:
        """Let gradients flow through `models`, and expect none of theirs: DDP would wait."""
        weights = [weight for model in models for weight in model.parameters()]
        learning = [weight for weight in weights if weight.requires_grad]
        switches = [self.switches[model] for model in models if model in self.switches]
        for weight in learning:
            weight.requires_grad_(False)
        for switch in switches:
            switch(False)
        try:
            yield
        finally:
            for weight in learning:
                weight.requires_grad_(True)
            for switch in switches:
                switch(self.is_on)
