"""All-gathers of sharded parameters, begun further ahead."""

from typing import TYPE_CHECKING, Any

from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.utils.hooks import RemovableHandle

from ..lifecycle import named_parts
from .callback import Callback

if TYPE_CHECKING:
    from ..trainer import DreamTrainer


class OptimizeFSDP(Callback):
    """Lets FSDP gather the parameters of the next `prefetch` modules ahead of their use.

    Motive: by default FSDP learns of a module when the host reaches it, one module ahead, so
    that a slow host or a small block leaves the network idle. The first step shows in which
    order the modules run; it is then set for all others. The numbers stay the same; each
    further module ahead takes its unsharded parameters in memory.
    """

    def __init__(self, prefetch: int = 2) -> None:
        if prefetch < 1:
            raise ValueError(f"prefetch={prefetch} gathers nothing. Use a whole number from 1.")
        self.prefetch = prefetch
        self.begun: list[list[nn.Module]] = []
        """Of each model the sharded modules, as their forward began; `ended`, as it ended."""

        self.ended: list[list[nn.Module]] = []
        self.handles: list[RemovableHandle] = []

    def pre_fit(self, trainer: "DreamTrainer") -> None:
        self.begun, self.ended = [], []
        for _, model in named_parts(trainer):
            self.begun.append([])
            self.ended.append([])
            for module in model.modules():
                if isinstance(module, FSDPModule):
                    self._trace(module, self.begun[-1], self.ended[-1])
        if not self.handles:
            _say(trainer, "no module of this run is sharded by FSDP: nothing to do")

    def post_train_step(
        self, trainer: "DreamTrainer", result: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        if not self.handles or trainer.is_accumulating_gradients:
            return
        self._remove()
        for begun, ended in zip(self.begun, self.ended, strict=True):
            for module, following in _following(begun, self.prefetch):
                module.set_modules_to_forward_prefetch(following)
            # Backward enters a module where forward has left it, the last one first.
            for module, following in _following(ended[::-1], self.prefetch):
                module.set_modules_to_backward_prefetch(following)
        count = sum(map(len, self.begun))
        _say(trainer, f"{count} sharded modules, each gathers the next {self.prefetch} ahead")

    def on_interrupt(self, trainer: "DreamTrainer") -> None:
        self._remove()

    def _trace(self, module: nn.Module, begun: list[nn.Module], ended: list[nn.Module]) -> None:
        def begin(module: nn.Module, args: Any) -> None:
            if module not in begun:
                begun.append(module)

        def end(module: nn.Module, args: Any, output: Any) -> None:
            if module not in ended:
                ended.append(module)

        self.handles.append(module.register_forward_pre_hook(begin))
        self.handles.append(module.register_forward_hook(end))

    def _remove(self) -> None:
        for handle in self.handles:
            handle.remove()
        self.handles = []


def _following(modules: list[Any], count: int) -> list[tuple[Any, list[Any]]]:
    """Each module with the `count` ones behind it."""
    return [(m, modules[i + 1 : i + 1 + count]) for i, m in enumerate(modules)]


def _say(trainer: "DreamTrainer", text: str) -> None:
    if trainer.world.is_rank_zero:
        print(f"OptimizeFSDP: {text}", flush=True)
