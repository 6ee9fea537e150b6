"""A trainer that sets itself up, trains and validates."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..callbacks.callback import Callback, CallbackCollection, Events
from ..configs import BaseTrainerConfig, RunError, Stopped
from ..metrics import unwrapped
from ..parallel.accumulate import GradientSync
from ..position import Position, Reader, generators
from ..streams import RandomState
from ..world import as_dtype
from .abstract import AbstractTrainer

if TYPE_CHECKING:  # What imports DTensor, FSDP or dynamo waits for the run.
    from ..checks.call_order import CallOrder
    from ..checks.first_step import FirstStep
    from ..parallel.pipeline import Loss, Pipeline


class BaseTrainer(AbstractTrainer):
    """State and verbs of training: `fit`, and `backward` and `step` inside `training_step`."""

    config: BaseTrainerConfig
    experiment: str
    callbacks: CallbackCollection
    events: Events
    gradient_sync: GradientSync
    pipelines: "dict[str, Pipeline]"
    """Attribute name of a model -> its pipeline, where pp is in use."""

    stages: list[dict[str, nn.Module]]
    """This rank's models by attribute name; several entries where a rank holds several stages."""

    optimizers: dict[str, Optimizer]
    """By the name of the attribute, else of the model."""

    parameter_names: dict[int, str]
    """id of a parameter -> its name in the whole model."""

    schedulers: dict[Optimizer, LRScheduler]
    train_loader: Iterable[Any]
    val_loader: Iterable[Any] | None

    first_step: "FirstStep | None" = None
    call_order: "CallOrder | None" = None
    """The checks of the first step, until it is done."""

    epoch = 0
    """Finished epochs."""

    global_step = 0
    """Finished optimizer steps."""

    start_step = 0
    """The `global_step` at which this process began: above 0 where the run was resumed."""

    epoch_steps = 0
    """Finished optimizer steps of the epoch under way."""

    epoch_is_trained = False
    """Whether only the validation is left of the epoch under way."""

    validated_step = -1
    """The `global_step` after which the newest validation ran."""

    position = Position()
    """Where in its data the epoch under way begins."""

    reader: Reader | None = None
    """What reads the epoch under way."""

    keeps_position = False
    """Whether the position will be asked for: set by what saves the run."""

    random_before_validation: RandomState | None = None
    """The random streams from before the validation under way."""

    exit_code = 0
    """What the process ends with where the run stops early."""

    is_stopping = False
    """Whether the run ends here; every rank sets it at the same boundary or batch."""

    is_accumulating_gradients = False
    """Whether this batch is not the last of its window: `step` then does nothing."""

    is_logging_step = False
    """Whether the optimizer step under way will be logged."""

    is_sanity_check = False
    """Whether the validation under way is the one before training, of a few batches."""

    batch_counts = True
    """Whether the validation batch under way is new, and not repeated to keep up with others."""

    warned_of_no_validation = False
    """Whether it has been said that a validation found no batch."""

    batches_in_window = 0
    """Batches of this window so far, the one under way included."""

    expected_steps: int | None = None
    """The `global_step` at which the run will end, where that is known."""

    epoch_ended = ""
    """What ended the newest training epoch."""

    _also_logged: Mapping[str, Any] = {}
    _num_items: Tensor | None = None
    _items_factor: Tensor | None = None
    _items_step = -1

    def default_callbacks(self) -> list[Callback]:
        """What `config.callbacks=None` stands for."""
        return []

    def logs_step(self, step: int) -> bool:
        """Whether optimizer step number `step`, from 1, is logged."""
        return False

    def also_log(self, values: Mapping[str, Any]) -> None:
        """Add values, one number each, to the record of the step, epoch or validation under way.

        What it adds to a step that is not logged is dropped; of one name the last value counts.
        Call it on every rank, with the same names.
        """
        self._also_logged = {**self._also_logged, **values}

    def take_also_logged(self) -> Mapping[str, Any]:
        """What has been added, for the record that takes it."""
        taken, self._also_logged = self._also_logged, {}
        return taken

    def name_experiment(self) -> str:
        """What the run is called, and its folder; rank 0's answer counts."""
        from ..lifecycle import name_run

        return self.config.experiment or name_run()

    def restore(self) -> None:
        """Go on from a checkpoint, where there is one to go on from: the end of set-up."""

    def random_state(self) -> RandomState:
        """Where this rank's random streams are."""
        return RandomState.capture(self.world.device, self._generators())

    def restore_random_state(self, state: RandomState) -> None:
        state.restore(self.world.device, self._generators())

    def _generators(self) -> list[torch.Generator]:
        return [g for loader in (self.train_loader, self.val_loader) for g in generators(loader)]

    def fit(self) -> None:
        """Set up, then train to the end. All ranks take part."""
        from .. import lifecycle, loop
        from ..checks.explain import explained

        own = self.config.callbacks
        chosen = self.default_callbacks() if own is None else own
        self.callbacks = CallbackCollection([*chosen, *self.config.extra_callbacks])
        self.events = Events((), rank=0)
        try:
            lifecycle.set_up(self)
            self.restore()
            loop.fit(self)
        except BaseException as error:
            for event in self.events.on_interrupt:
                try:
                    event(self)
                except Exception as second:
                    error.add_note(f"{event.__qualname__} failed as well: {second!r}")
            if told := explained(error, self.named_models()):
                raise told from error
            raise
        if self.exit_code:
            raise Stopped(self.exit_code)

    def backward(self, loss: Tensor, num_items: Tensor | int | None = None) -> None:
        """Add the gradients of `loss`, shape (), to those of the window.

        A mean is scaled so that the window counts as one batch. With `num_items`, `loss` is
        a sum over so many items, and the step divides by the items of the whole window on
        all data ranks: the exact mean where batches hold different numbers of tokens.
        """
        if num_items is not None:
            if self.pipelines:
                raise RunError(
                    "self.backward(num_items=...) cannot divide the loss of a pipeline, whose "
                    "gradients are there already. Leave num_items out, or set pipeline_parallel=1."
                )
            items = torch.as_tensor(num_items, device=loss.device).detach()
            if self._items_step != self.global_step:  # The first batch of a window.
                self._items_step = self.global_step
                self._num_items = self._items_factor = None
            self._num_items = items.clone() if self._num_items is None else self._num_items + items
        elif (window := self.config.training_parameters.gradient_accumulation_steps) > 1:
            loss = loss / window
        if self.call_order is not None:
            self.call_order.compare("backward")
        if self.first_step is not None:
            self.first_step.loss(loss, is_sum=num_items is not None)
        if loss.requires_grad or not self.pipelines:  # A pipeline has been backward already.
            loss.backward()

    def pipeline(self, model: nn.Module, inputs: Tensor, *, target: Any, loss: "Loss") -> Tensor:
        """`loss(model(inputs), target)`, shape (), cut into stages or not.

        `loss` is a mean over rows. It gets the whole output of a tensor-parallel model, or with
        `loss_parallel` this rank's classes. On a pipeline the gradients are added here already,
        and `self.backward` adds nothing; the value is known on every rank.
        """
        for name, pipeline in self.pipelines.items():
            if getattr(self, name) is model:
                window = self.config.training_parameters.gradient_accumulation_steps
                return pipeline.run(inputs, target, loss, window=window)
        return loss(unwrapped(model(inputs)), target)

    def step(self, optimizer: Optimizer) -> Tensor | None:
        """Clip, step `optimizer` and its scheduler, clear the gradients.

        Returns the gradient norm before clipping, shape (), still on the device: computed
        where it clips and where the step is logged, else None. While gradients accumulate
        nothing is done and None returned. All ranks take part.
        """
        if self.is_accumulating_gradients:
            return None
        norm = self._finish_gradients(optimizer)
        events = self.events
        for event in events.pre_optimizer_step:
            event(self, optimizer)
        optimizer.step()
        for event in events.post_optimizer_step:
            event(self, optimizer)
        for event in events.pre_optimizer_zero_grad:
            event(self, optimizer)
        optimizer.zero_grad()
        for event in events.post_optimizer_zero_grad:
            event(self, optimizer)
        if (scheduler := self.schedulers.get(optimizer)) is not None:
            scheduler.step()
        return norm

    def frozen(self, *models: nn.Module) -> AbstractContextManager[None]:
        """Gradients flow through `models`, not into them; forward and backward belong inside."""
        return self.gradient_sync.frozen(models)

    def _finish_gradients(self, optimizer: Optimizer) -> Tensor | None:
        from ..parallel.clip import clip, scale, total_norm

        max_norm = self.config.training_parameters.gradient_clip_val
        must_be_finite = self.config.device_parameters.error_if_nonfinite
        factor = self._window_factor()
        wants_norm = self.is_logging_step or must_be_finite or max_norm is not None
        sync = self.gradient_sync
        averages = sync.group is not None or sync.across is not None
        is_first = self.first_step is not None or self.global_step == 0
        if factor is None and not wants_norm and not averages and not is_first:
            return None
        gradients = [
            parameter.grad
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        ]
        if not gradients:
            raise RunError(
                f"No parameter of {type(optimizer).__name__} has a gradient at step "
                f"{self.global_step + 1}. Call self.backward(loss) before self.step(optimizer), "
                "on a loss that depends on its parameters, and leave gradient synchronisation on."
            )
        sync.average(gradients)
        if self.first_step is not None:
            self.first_step.gradients(optimizer)
        if factor is not None:
            scale(gradients, factor)
        if sync.across is not None:
            sync.across(gradients)
        if not wants_norm:
            return None
        norm = total_norm(gradients, self.world.pp_group)
        if must_be_finite and not norm.isfinite():
            raise RunError(
                f"The gradient norm is {norm.item()} at step {self.global_step + 1} "
                "(error_if_nonfinite=True)."
            )
        if max_norm is not None:
            clip(gradients, norm, max_norm)
        return norm

    def _window_factor(self) -> Tensor | float | None:
        """What the window's gradients lack to be those of one mean."""
        if self._items_step == self.global_step and self._num_items is not None:
            if self._items_factor is None:  # Counted once, however many optimizers step.
                total = self._num_items.clone()
                if self.world.loss_size > 1:
                    dist.all_reduce(total, group=self.world.loss_group)
                # Ranks are averaged, but items are summed. None at all: nothing to scale.
                self._items_factor = self.world.loss_size / total.clamp(min=1)
            return self._items_factor
        window = self.config.training_parameters.gradient_accumulation_steps
        short = self.batches_in_window
        return window / short if short < window else None

    def autocast(self) -> AbstractContextManager[Any]:
        """The forward pass in `param_dtype`, where FSDP does not see to it."""
        from ..lifecycle import is_called

        dtype = as_dtype(self.config.device_parameters.param_dtype)
        if dtype is torch.float32 or is_called("apply_fully_shard", self):
            return nullcontext()
        # No cache: it would serve weights from before a step to a forward after it.
        return torch.autocast(self.world.device.type, dtype, cache_enabled=False)
