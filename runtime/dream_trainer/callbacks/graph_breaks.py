"""Where the compiler has to give up a graph."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from traceback import format_list
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..lifecycle import named_parts
from .callback import Callback, release, surround

if TYPE_CHECKING:
    from ..trainer import DreamTrainer


class FindGraphBreaksCallback(Callback):
    """Says once, after `skip` steps, what breaks the graphs of the models, and where.

    Motive: compiled code with breaks runs, only slower, and nothing complains. One step shows
    how each compiled block is called, or each model where none is compiled; the compiler then
    explains these very calls. `output_path` gets every place with its reason, its stack and
    how often it came; `breaks` holds the same. Every rank takes part, rank 0 writes. Code is
    compiled anew afterwards; `stop` ends the run instead.
    """

    def __init__(
        self, output_path: str | Path = "graph_breaks.log", skip: int = 5, stop: bool = False
    ) -> None:
        self.output_path, self.skip, self.stop = Path(output_path), skip, stop
        self.breaks: dict[str, list[str]] = {}
        """Place and reason -> the blocks that break there, each as often as it does."""

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
        # Still within autocast and what the mesh needs around a step.
        for name, (block, args, kwargs) in self.calls.items():
            self._explain(name, block, args, kwargs)
        trainer.restore_random_state(state)
        if trainer.world.is_rank_zero:
            self._report(len(blocks))
        self.calls.clear()

    def _note(self, name: str, block: nn.Module, args: Any, kwargs: Any) -> None:
        self.calls[name] = block, args, kwargs

    def _explain(self, name: str, block: nn.Module, args: Any, kwargs: Any) -> None:
        import torch._dynamo

        explained = torch._dynamo.explain(block._call_impl)(*args, **kwargs)
        for found in explained.break_reasons:
            last = found.user_stack[-1]
            where = f"{last.filename}:{last.lineno} in {last.name}"
            text = f"{where}\n{''.join(format_list(found.user_stack))}{found.reason}"
            self.breaks.setdefault(text, []).append(name)

    def _report(self, blocks: int) -> None:
        count = sum(map(len, self.breaks.values()))
        ran = f"blocks explained: {len(self.calls)} of {blocks}"
        title = f"{count} graph breaks, different ones: {len(self.breaks)}, {ran}"
        places = sorted(self.breaks.items(), key=lambda item: -len(item[1]))
        parts = [
            f"{len(names)}x {text}\n  of {', '.join(dict.fromkeys(names))}"
            for text, names in places
        ]
        self.output_path.parent.mkdir(parents=True, exist_ok=True)
        self.output_path.write_text("\n\n".join([title, *parts]) + "\n")
        print(f"{title}; written to {self.output_path}", flush=True)
        for text, names in places:
            print(f"  {len(names)}x {text.partition(chr(10))[0]}", flush=True)


def _blocks(trainer: "DreamTrainer") -> dict[str, nn.Module]:
    """The outermost compiled modules; the models where none is compiled."""
    found: dict[str, nn.Module] = {}
    for root, model in named_parts(trainer):
        for name, module in model.named_modules(prefix=root):
            inside = any(name.startswith(f"{outer}.") for outer in found)
            if module._compiled_call_impl is not None and not inside:
                found[name] = module
    return found or dict(named_parts(trainer))
