"""The loop: epochs of windows of batches, and validation in between.

fit:          until n_epochs or max_steps:  train_epoch; validate
train_epoch:  for each batch:               train_batch; at a window's end, one step
validate:     for each batch:               validation_step, averaged over all ranks

A run that is resumed goes on wherever it was: in an epoch, before a validation, between two.
"""

from collections.abc import Callable
from contextlib import ExitStack
from math import ceil, inf
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.tensor.parallel import loss_parallel

from .checks.call_order import CallOrder
from .checks.first_step import FirstStep
from .checks.recompiles import AFTER_STEPS, warn_of_recompiles
from .checks.replicas import warn
from .checks.watch import watched
from .configs import RunError
from .data import TrainBatches, ValidationBatches, move, set_epoch, unpadded
from .lifecycle import named_parts
from .metrics import Mean
from .parallel.context import context_parallel
from .position import Position, Reader

if TYPE_CHECKING:
    from .trainer import BaseTrainer

Step = Callable[[Any, int], dict[str, Any]]


def fit(trainer: "BaseTrainer") -> None:
    """Train to the end of the last epoch, or to `max_steps`. All ranks take part."""
    parameters = trainer.config.training_parameters
    trainer.expected_steps = _expected_steps(trainer)
    for event in trainer.events.pre_fit:
        event(trainer)
    if parameters.num_sanity_val_steps and not trainer.start_step:
        trainer.is_sanity_check = True
        validate(trainer, limit=parameters.num_sanity_val_steps)
        trainer.is_sanity_check = False
    if parameters.startup_checks:
        trainer.first_step = FirstStep(named_parts(trainer), trainer.world)
    if parameters.debug_collectives and trainer.world.loss_size > 1:
        trainer.call_order = CallOrder(named_parts(trainer), trainer.world)
    if trainer.start_step:
        _validate_if_due(trainer)  # It was stopped there.
    while not trainer.is_stopping and (trainer.epoch_is_trained or _goes_on(trainer)):
        _run_epoch(trainer)
    for event in trainer.events.post_fit:
        event(trainer)


def _goes_on(trainer: "BaseTrainer") -> bool:
    parameters = trainer.config.training_parameters
    last_step = parameters.max_steps or inf
    return trainer.epoch < parameters.epochs and trainer.global_step < last_step


def _run_epoch(trainer: "BaseTrainer") -> None:
    """Train and validate, or what of it is left; stop where the trainer is told to."""
    parameters = trainer.config.training_parameters
    for event in trainer.events.pre_epoch:
        event(trainer)
    if not trainer.epoch_is_trained:
        train_epoch(trainer)
        if trainer.is_stopping:
            return
    is_last = trainer.epoch + 1 >= parameters.epochs or trainer.global_step == parameters.max_steps
    if parameters.val_every_n_steps is None or is_last:
        _validate_once(trainer)
        if trainer.is_stopping:
            return
    for event in trainer.events.post_epoch:
        event(trainer)
    trainer.epoch += 1
    trainer.epoch_steps, trainer.epoch_is_trained = 0, False
    trainer.reader, trainer.position = None, Position()
    for event in trainer.events.on_boundary:
        event(trainer)


def _validate_if_due(trainer: "BaseTrainer") -> None:
    every = trainer.config.training_parameters.val_every_n_steps
    if every is not None and trainer.global_step % every == 0:
        _validate_once(trainer)


def _validate_once(trainer: "BaseTrainer") -> None:
    """Validate, unless that has been done after this very step."""
    if trainer.validated_step != trainer.global_step:
        validate(trainer, limit=trainer.config.training_parameters.val_steps_per_epoch)


def train_epoch(trainer: "BaseTrainer") -> None:
    """One pass over the training loader, or `train_steps_per_epoch` steps of it."""
    parameters = trainer.config.training_parameters
    window = parameters.gradient_accumulation_steps
    events = trainer.events
    move_to = None if trainer.world.device.type == "cpu" else trainer.world.device
    precision = trainer.autocast()
    training_step = watched(trainer, in_parallel(trainer, trainer.training_step))
    set_epoch(trainer.train_loader, trainer.epoch)
    trainer.reader = Reader(trainer.train_loader, trainer.position, trainer.keeps_position)
    batches = TrainBatches(trainer.reader, _batch_limit(trainer), trainer.world)
    first_batch = trainer.reader.given
    for event in events.pre_train_epoch:
        event(trainer)
    with ExitStack() as contexts:
        for context in events.train_context:
            contexts.enter_context(context(trainer))
        for batch_idx, (batch, is_last) in enumerate(batches, first_batch):
            in_window = (batch_idx - first_batch) % window + 1
            accumulates = in_window < window and not is_last
            trainer.batches_in_window = in_window
            trainer.is_accumulating_gradients = accumulates
            if in_window == 1:
                trainer.is_logging_step = trainer.logs_step(trainer.global_step + 1)
                trainer.take_also_logged()
            if window > 1:
                trainer.gradient_sync.set(not accumulates)
            if move_to is not None:
                batch = move(batch, move_to)
            if trainer.first_step is not None:
                trainer.first_step.batch(batch, ends_window=not accumulates)
            for event in events.pre_train_step:
                event(trainer, batch, batch_idx)
            with precision:
                result = training_step(batch, batch_idx)
            if not isinstance(result, dict):
                raise RunError(_not_a_dict("training_step", result))
            if trainer.first_step is not None:
                trainer.first_step.count(trainer.count_items(batch))
            if not accumulates:
                trainer.global_step += 1
                trainer.epoch_steps += 1
                trainer.epoch_is_trained = is_last  # Where it stops here, nothing is left.
            if events.post_train_step:
                values = _detached(result)
                for event in events.post_train_step:
                    event(trainer, values, batch, batch_idx)
            if not accumulates:
                _after_step(trainer)
                if not is_last:  # After the last one the epoch has to end first.
                    for event in events.on_boundary:
                        event(trainer)
                if trainer.is_stopping:
                    break
    trainer.epoch_ended = "early: stopping" if trainer.is_stopping else batches.ended_by
    for event in events.post_train_epoch:
        event(trainer)
    if not trainer.epoch_steps:
        raise RunError(f"The training loader gave no batch: it ended {batches.ended_by}.")


def _after_step(trainer: "BaseTrainer") -> None:
    steps = trainer.global_step - trainer.start_step  # of this process
    if trainer.call_order is not None:
        trainer.call_order.step = trainer.global_step + 1
        if steps == trainer.config.training_parameters.debug_collectives:
            trainer.call_order.close()
            trainer.call_order = None
    if trainer.first_step is not None:
        trainer.first_step.warn_of_uneven_means()
        trainer.first_step = None
    if steps == AFTER_STEPS and trainer.config.device_parameters.compile_model:
        warn_of_recompiles(trainer.world)
    _validate_if_due(trainer)
    if steps == 1:
        comm = trainer.config.device_parameters.comm
        trainer.world.set_timeout(comm.train_timeout_seconds)


@torch.no_grad()
def validate(trainer: "BaseTrainer", limit: int | None) -> dict[str, float]:
    """The means of what `validation_step` returns, over all items of all ranks."""
    if (
        trainer.val_loader is None
        or limit == 0
        or "validation_step" not in trainer.defined_hooks()
    ):
        return {}
    events = trainer.events
    modes = {m: m.training for model in trainer.named_models().values() for m in model.modules()}
    mean = Mean(trainer.world)
    if trainer.keeps_position:  # A run that is stopped in here validates anew when it goes on.
        trainer.random_before_validation = trainer.random_state()
    trainer.take_also_logged()
    for event in events.pre_validation_epoch:
        event(trainer)
    for model in trainer.named_models().values():
        model.eval()
    with ExitStack() as contexts:
        for context in events.validation_context:
            contexts.enter_context(context(trainer))
        contexts.enter_context(trainer.autocast())
        contexts.enter_context(unpadded(trainer.val_loader))
        batches = ValidationBatches(trainer.val_loader, limit, trainer.world)
        ran = False
        for batch_idx, (batch, counts) in enumerate(batches):
            trainer.batch_counts = counts
            result = _validate_batch(trainer, batch, batch_idx)
            ran = True
            if counts:
                mean.add(result, weight=trainer.count_items(batch))
            if trainer.is_stopping:
                break
    for module, mode in modes.items():
        module.training = mode
    if trainer.is_stopping:
        return {}
    if not ran:
        _warn_of_no_validation(trainer)
    mean.add(trainer.take_also_logged())
    values = mean.reduce()
    trainer.random_before_validation = None
    if not trainer.is_sanity_check:
        trainer.validated_step = trainer.global_step
    for event in events.post_validation_epoch:
        event(trainer, values)
    return values


def _warn_of_no_validation(trainer: "BaseTrainer") -> None:
    if not trainer.warned_of_no_validation:
        trainer.warned_of_no_validation = True
        warn(
            trainer.world,
            "the validation loader gave no batch, so that nothing was validated. A generator "
            "can be read only once; return a loader, or None for no validation.",
        )


def _validate_batch(trainer: "BaseTrainer", batch: Any, batch_idx: int) -> dict[str, Any]:
    batch = move(batch, trainer.world.device)
    for event in trainer.events.pre_validation_step:
        event(trainer, batch, batch_idx)
    result = in_parallel(trainer, trainer.validation_step)(batch, batch_idx)
    if not isinstance(result, dict):
        raise RunError(_not_a_dict("validation_step", result))
    for event in trainer.events.post_validation_step:
        event(trainer, result, batch, batch_idx)
    return result


def in_parallel(trainer: "BaseTrainer", hook: Step) -> Step:
    """`hook` with what the mesh needs around it: the sharded loss, the split context."""
    parameters, axes = trainer.config.device_parameters, trainer.world.axes
    if parameters.loss_parallel and axes.tp > 1:
        hook = loss_parallel()(hook)  # A context manager, and so a decorator.
    if axes.cp == 1:
        return hook
    mesh = trainer.world.mesh["cp"]

    def step(batch: Any, batch_idx: int) -> dict[str, Any]:
        tensors = trainer.context_parallel_buffers(batch)
        rotate = parameters.context_parallel_rotate_method
        with context_parallel(mesh, batch, tensors, rotate) as local:
            return hook(local, batch_idx)

    return step


def _batch_limit(trainer: "BaseTrainer") -> int | None:
    """Batches that are left of the epoch, where a number of steps limits it."""
    parameters = trainer.config.training_parameters
    steps = []
    if parameters.train_steps_per_epoch is not None:
        steps.append(parameters.train_steps_per_epoch - trainer.epoch_steps)
    if parameters.max_steps is not None:
        steps.append(parameters.max_steps - trainer.global_step)
    return max(0, min(steps)) * parameters.gradient_accumulation_steps if steps else None


def _expected_steps(trainer: "BaseTrainer") -> int | None:
    parameters = trainer.config.training_parameters
    steps: float = inf
    try:
        batches = len(trainer.train_loader)  # type: ignore[arg-type]
        steps = ceil(batches / parameters.gradient_accumulation_steps)
    except TypeError:
        pass
    per_epoch = min(steps, parameters.train_steps_per_epoch or inf)
    total = min(per_epoch * parameters.epochs, parameters.max_steps or inf)
    return None if total == inf else int(total)


def _detached(result: dict[str, Any]) -> dict[str, Any]:
    """What a step returned, without the graphs that its losses would keep alive."""
    return {
        name: value.detach() if isinstance(value, torch.Tensor) else value
        for name, value in result.items()
    }


def _not_a_dict(hook: str, result: object) -> str:
    return (
        f"{hook} returned {type(result).__name__}, not a dict. "
        'Return what is to be logged: {"train/loss": loss}, or {}.'
    )
