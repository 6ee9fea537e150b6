"""Where the compiler has to give up a graph."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from traceback import format_list
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

from ..lifecycle import named_parts
from .callback import Callback, release, surround

if TYPE_CHECKING:
    from ..trainer import DreamTrainer


@dataclass(frozen=True)
class Break:
    """One place where a graph ends, and why."""

    place: str
    reason: str
    stack: str
    blocks: list[str]
    """In which it happened, each as often as the compiler came to it."""

    def __str__(self) -> str:
        blocks = ", ".join(dict.fromkeys(self.blocks))
        return f"{len(self.blocks)}x {self.place}, of {blocks}\n{self.stack}{self.reason}"


class FindGraphBreaksCallback(Callback):
    """Says once, after `skip` steps, what breaks the graphs of the models, and where.

    Motive: compiled code with breaks runs, only slower, and nothing complains. One step shows
    how each compiled block is called, or each model where none is compiled; the compiler then
    goes through these very calls. `output_path` gets every place with its reason, its stack
    and how often the compiler came to it; `breaks` holds the same. Every rank takes part, rank
    0 writes. Code is compiled anew afterwards; `stop` ends the run instead.
    """

    def __init__(
        self, output_path: str | Path = "graph_breaks.log", skip: int = 5, stop: bool = False
    ) -> None:
        self.output_path, self.skip, self.stop = Path(output_path), skip, stop
        self.breaks: dict[tuple[str, str], Break] = {}
        """By place and reason."""

        self.calls: dict[str, tuple[nn.Module, Any, Any]] = {}
        self.done = 0

    def pre_fit(self, trainer: "DreamTrainer") -> None:
        surround(trainer, "training_step", partial(self._explained, trainer))

    def post_train_step(
        self, trainer: "DreamTrainer", result: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        if trainer.is_accumulating_gradients:
            return
        self.done += 1
        if self.done == self.skip + 1:
            release(trainer, "training_step")
            trainer.is_stopping = trainer.is_stopping or self.stop

    def post_fit(self, trainer: "DreamTrainer") -> None:
        if self.done <= self.skip and trainer.world.is_rank_zero:
            print(
                f"graph breaks: the run ended after {self.done} steps, but skip={self.skip}. "
                "Train on more data, or skip less.",
                flush=True,
            )

    def on_interrupt(self, trainer: "DreamTrainer") -> None:
        release(trainer, "training_step")

    @contextmanager
    def _explained(self, trainer: "DreamTrainer") -> Iterator[None]:
        if self.done != self.skip or trainer.is_accumulating_gradients:
            yield
            return
        blocks = _blocks(trainer)
        with ExitStack() as step:
            step.enter_context(torch.compiler.set_stance("force_eager"))  # Hooks run as written.
            for name, block in blocks.items():
                note = partial(self._note, name)
                handle = block.register_forward_pre_hook(note, with_kwargs=True)
                step.callback(handle.remove)
            yield
        state = trainer.random_state()
        trainer.gradient_sync.set(False)  # DDP would wait for a backward of these calls.
        # Still within autocast and what the mesh needs around a step.
        for name, (block, args, kwargs) in self.calls.items():
            self._explain(name, block, args, kwargs)
        trainer.gradient_sync.set(True)
        trainer.restore_random_state(state)
        if trainer.world.is_rank_zero:
            self._report(len(blocks))
        self.calls.clear()

    def _note(self, name: str, block: nn.Module, args: Any, kwargs: Any) -> None:
        self.calls[name] = block, args, kwargs

    def _explain(self, name: str, block: nn.Module, args: Any, kwargs: Any) -> None:
        import torch._dynamo
        from torch._dynamo.utils import graph_break_reasons

        torch._dynamo.reset()
        # DDP's hooks would break the graph of a model that is not compiled; FSDP's have to run.
        hooked = block._compiled_call_impl or isinstance(block, FSDPModule)
        call = block._call_impl if hooked else block.forward
        # torch._dynamo.explain would miss a break before the first operation.
        torch.compile(call, backend="eager")(*args, **kwargs)
        for found in graph_break_reasons:
            last = found.user_stack[-1] if found.user_stack else None
            place = f"{last.filename}:{last.lineno} in {last.name}" if last else "torch"
            stack = "".join(format_list(found.user_stack))
            new = Break(place, found.reason, stack, [])
            self.breaks.setdefault((place, found.reason), new).blocks.append(name)
        torch._dynamo.reset()

    def _report(self, blocks: int) -> None:
        breaks = sorted(self.breaks.values(), key=lambda found: -len(found.blocks))
        count = sum(len(found.blocks) for found in breaks)
        ran = f"blocks explained: {len(self.calls)} of {blocks}"
        title = f"graph breaks: {count}, different ones: {len(breaks)}, {ran}"
        self.output_path.parent.mkdir(parents=True, exist_ok=True)
        self.output_path.write_text("\n\n".join([title, *map(str, breaks)]) + "\n")
        print(f"{title}; written to {self.output_path}", flush=True)
        for found in breaks:
            print(f"  {len(found.blocks)}x {found.place}", flush=True)


def _blocks(trainer: "DreamTrainer") -> dict[str, nn.Module]:
    """The outermost compiled modules; the models where none is compiled."""
    found: dict[str, nn.Module] = {}
    for root, model in named_parts(trainer):
        for name, module in model.named_modules(prefix=root):
            inside = any(name.startswith(f"{outer}.") for outer in found)
            if module._compiled_call_impl is not None and not inside:
                found[name] = module
    return found or dict(named_parts(trainer))
