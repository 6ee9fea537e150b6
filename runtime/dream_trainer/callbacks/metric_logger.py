"""Metrics of torchmetrics: over all ranks, once for each validation."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..checks.replicas import warn
from ..configs import RunError
from ..metrics import is_metric, leaves
from .callback import Callback

if TYPE_CHECKING:
    from ..trainer import DreamTrainer

MOST_CLASSES = 32
"""A metric with more values than that is not logged one by one."""


class MetricLoggerCallback(Callback):
    """Logs the metrics that `configure_metrics` assigned, as `metrics/<attribute>`.

    Motive: accuracy over uneven shards, F1 or AUROC are no means of means. A metric counts
    every sample of all data ranks once: ranks of a tensor-parallel or pipeline group, which
    see the same data, do not count twice, nor does a batch that a rank repeats to wait for
    others. It is reset, moved and reduced here; the steps only `update` it.

    Those that `training_step` updates are logged at the end of an epoch, over what this
    process has trained of it, the others after every validation.
    """

    def __init__(self) -> None:
        self.metrics: dict[str, Any] = {}
        self.attributes: set[str] = set()
        self.of_training: set[str] = set()
        self.aside: dict[str, Any] = {}
        self.warned: set[str] = set()

    def post_setup(self, trainer: "DreamTrainer") -> None:
        for name, value in vars(trainer).items():
            if found := dict(_named_metrics(name, value)):
                self.attributes.add(name)
                self.metrics |= found
        for name, metric in self.metrics.items():
            if any(state.is_meta for state in _tensors(metric)):
                raise RunError(
                    f"self.{name} was made in configure_models, whose tensors hold no values. "
                    "Assign it in configure_metrics."
                )
            metric.to(trainer.world.device)
            for leaf in leaves(metric):
                leaf.process_group = trainer.world.loss_group
                leaf.sync_on_compute = trainer.world.loss_size > 1

    @contextmanager
    def train_context(self, trainer: "DreamTrainer") -> Iterator[None]:
        for metric in self.metrics.values():
            metric.reset()
        yield
        if self.metrics and not trainer.is_stopping:
            updated = self._updated(trainer)
            self.of_training |= updated
            self._log(trainer, updated)

    @contextmanager
    def validation_context(self, trainer: "DreamTrainer") -> Iterator[None]:
        before = {name: _updates(metric) for name, metric in self.metrics.items()}
        self.of_training |= {name for name, count in before.items() if count}
        yield
        if not self.metrics or trainer.is_stopping:
            return
        for name in sorted(self.of_training):
            if _updates(self.metrics[name]) > before[name]:
                raise RunError(
                    f"self.{name} is updated by training_step and by validation_step, which "
                    "would mix them. Assign one metric for each."
                )
        self._log(trainer, self._updated(trainer) - self.of_training)

    def pre_validation_step(self, trainer: "DreamTrainer", batch: Any, batch_idx: int) -> None:
        if self.metrics and not trainer.batch_counts:  # Let it count in copies.
            self.aside = {name: getattr(trainer, name) for name in self.attributes}
            group = trainer.world.loss_group
            for name, twin in copy.deepcopy(self.aside, {id(group): group}).items():
                setattr(trainer, name, twin)

    def post_validation_step(
        self, trainer: "DreamTrainer", result: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        for name, value in self.aside.items():
            setattr(trainer, name, value)
        self.aside = {}

    def _updated(self, trainer: "DreamTrainer") -> set[str]:
        """The metrics that any data rank has updated. All data ranks take part."""
        counts = torch.tensor([_updates(metric) for metric in self.metrics.values()])
        if trainer.world.loss_size > 1:
            dist.all_reduce(counts, dist.ReduceOp.MAX, group=trainer.world.loss_group)
        pairs = zip(self.metrics, counts.tolist(), strict=True)
        return {name for name, count in pairs if count}

    def _log(self, trainer: "DreamTrainer", names: set[str]) -> None:
        for name, metric in self.metrics.items():
            if name not in names:
                continue
            values = dict(_flattened(f"metrics/{name}", metric.compute()))
            trainer.also_log({key: value for key, value in values.items() if value is not None})
            for key in {key for key, value in values.items() if value is None} - self.warned:
                self.warned.add(key)
                warn(trainer.world, f"{key} is not one number, nor a few: it is not logged.")
            metric.reset()


def _named_metrics(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The metrics in an attribute, each under the name it is logged with."""
    if is_metric(value) and hasattr(value, "compute"):  # No plain list or dict of them.
        yield name, value
    elif isinstance(value, (dict, nn.ModuleDict)):
        for key, item in value.items():
            yield from _named_metrics(f"{name}/{key}", item)
    elif isinstance(value, (list, tuple, nn.ModuleList)) and _may_hold_metrics(value):
        for index, item in enumerate(value):
            yield from _named_metrics(f"{name}/{index}", item)


def _may_hold_metrics(items: Any) -> bool:
    """By the first of them: a long list of samples is not walked."""
    first = next(iter(items), None)
    return isinstance(first, (dict, list, tuple)) or is_metric(first)


def _updates(metric: Any) -> int:
    return max((leaf.update_count for leaf in leaves(metric)), default=0)


def _tensors(metric: Any) -> Iterator[Tensor]:
    for leaf in leaves(metric):
        for state in leaf.metric_state.values():
            yield from [state] if isinstance(state, Tensor) else state


def _flattened(name: str, value: Any) -> Iterator[tuple[str, Tensor | None]]:
    """One number each; None for what is not one."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flattened(f"{name}/{key}", item)
    elif isinstance(value, (int, float)):
        yield name, torch.tensor(value)
    elif isinstance(value, Tensor) and value.numel() == 1:
        yield name, value.reshape(())
    elif isinstance(value, Tensor) and value.ndim == 1 and 0 < len(value) <= MOST_CLASSES:
        yield from ((f"{name}/{index}", item) for index, item in enumerate(value))
    else:
        yield name, None
