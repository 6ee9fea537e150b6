"""What a callback is, and how the runtime calls it."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar

from ..checks.alone import FirstCallAlone

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from ..trainer import DreamTrainer


class Callback:
    """Behaviour that cuts across trainers. Override the events that you need.

    An event that no callback overrides costs nothing. Events run on every rank.
    """

    logs: ClassVar[bool] = False
    """Whether it reads the values of a step: gradient norms are then computed for it."""

    def state_dict(self) -> dict[str, Any]:
        """What checkpoints hold of it: tensors, also sharded ones, or what can be pickled.

        Under each key the same on every rank; of a `RankZeroCallback`, that of rank 0. Tensors
        are read into the ones that this returns. Without tensors inside of other values.
        """
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned."""

    def pre_launch(self, config: Any) -> None:
        """`cli` is about to launch the run or, in each launched process, to start it."""

    def pre_configure(self, trainer: "DreamTrainer") -> None: ...
    def post_configure_models(self, trainer: "DreamTrainer") -> None:
        """The models have their shapes, whole, on the meta device: layers can be replaced."""

    def post_configure(self, trainer: "DreamTrainer") -> None: ...
    def pre_setup(self, trainer: "DreamTrainer") -> None: ...
    def post_setup(self, trainer: "DreamTrainer") -> None: ...
    def pre_fit(self, trainer: "DreamTrainer") -> None: ...
    def post_fit(self, trainer: "DreamTrainer") -> None: ...
    def pre_epoch(self, trainer: "DreamTrainer") -> None: ...
    def post_epoch(self, trainer: "DreamTrainer") -> None: ...
    def pre_train_epoch(self, trainer: "DreamTrainer") -> None: ...
    def post_train_epoch(self, trainer: "DreamTrainer") -> None: ...
    def pre_train_step(self, trainer: "DreamTrainer", batch: Any, batch_idx: int) -> None: ...
    def post_train_step(
        self, trainer: "DreamTrainer", result: dict[str, Any], batch: Any, batch_idx: int
    ) -> None: ...
    def pre_validation_epoch(self, trainer: "DreamTrainer") -> None: ...
    def post_validation_epoch(self, trainer: "DreamTrainer", result: dict[str, float]) -> None: ...
    def pre_validation_step(self, trainer: "DreamTrainer", batch: Any, batch_idx: int) -> None: ...
    def post_validation_step(
        self, trainer: "DreamTrainer", result: dict[str, Any], batch: Any, batch_idx: int
    ) -> None: ...
    def pre_optimizer_step(self, trainer: "DreamTrainer", optimizer: "Optimizer") -> None: ...
    def post_optimizer_step(self, trainer: "DreamTrainer", optimizer: "Optimizer") -> None: ...
    def pre_optimizer_zero_grad(self, trainer: "DreamTrainer", optimizer: "Optimizer") -> None: ...
    def post_optimizer_zero_grad(
        self, trainer: "DreamTrainer", optimizer: "Optimizer"
    ) -> None: ...
    def on_boundary(self, trainer: "DreamTrainer") -> None:
        """After an optimizer step and its validation, after an epoch: the state is whole here."""

    def on_interrupt(self, trainer: "DreamTrainer") -> None:
        """The run ends by an exception or a signal; other ranks may be gone: no collectives."""

    def train_context(self, trainer: "DreamTrainer") -> AbstractContextManager[Any]:
        """Entered around all training of an epoch."""
        raise NotImplementedError

    def validation_context(self, trainer: "DreamTrainer") -> AbstractContextManager[Any]:
        """Entered around every validation."""
        raise NotImplementedError


class RankZeroCallback(Callback):
    """A callback whose events run on global rank 0 alone; they must not use collectives."""


EVENTS = tuple(
    name
    for name in vars(Callback)
    if name.startswith(("pre_", "post_", "on_", "train_", "validation_"))
)


class CallbackCollection:
    """An ordered list of callbacks. Look one up by its class or class name."""

    def __init__(self, callbacks: Iterable[Callback] = ()) -> None:
        self._callbacks = list(callbacks)

    def __iter__(self) -> Iterator[Callback]:
        return iter(self._callbacks)

    def __len__(self) -> int:
        return len(self._callbacks)

    def __contains__(self, key: object) -> bool:
        return any(_matches(callback, key) for callback in self._callbacks)

    def __getitem__(self, key: str | type[Callback]) -> Callback:
        for callback in self._callbacks:
            if _matches(callback, key):
                return callback
        names = ", ".join(type(callback).__name__ for callback in self._callbacks) or "none"
        raise KeyError(f"No callback is called {key!r}; there are: {names}.")

    def append(self, callback: Callback) -> None:
        self._callbacks.append(callback)

    def pop(self, key: str | type[Callback]) -> Callback:
        """Remove and return the callback of that class or class name."""
        callback = self[key]
        self._callbacks.remove(callback)
        return callback


class Events:
    """For every event the bound methods that override it, resolved once."""

    def __init__(self, callbacks: Iterable[Callback], rank: int) -> None:
        self.callbacks = list(callbacks)
        for event in EVENTS:
            setattr(self, event, self._handlers(event, rank))

    def _handlers(self, event: str, rank: int) -> tuple[Callable[..., Any], ...]:
        return tuple(
            FirstCallAlone(getattr(callback, event))
            if isinstance(callback, RankZeroCallback)
            else getattr(callback, event)
            for callback in self.callbacks
            if getattr(type(callback), event) is not getattr(Callback, event)
            and (rank == 0 or not isinstance(callback, RankZeroCallback))
        )

    def __getattr__(self, event: str) -> tuple[Callable[..., Any], ...]:
        raise AttributeError(f"There is no event {event!r}.")


def surround(
    trainer: "DreamTrainer", method: str, enter: Callable[[], AbstractContextManager[Any]]
) -> None:
    """Have every call of `trainer.method` run within `enter()`, until `release`."""
    call = getattr(trainer, method)

    def surrounded(*args: Any, **kwargs: Any) -> Any:
        with enter():
            return call(*args, **kwargs)

    vars(trainer)[method] = surrounded


def release(trainer: "DreamTrainer", *methods: str) -> None:
    """The trainer's own methods again, whoever surrounded them."""
    for method in methods:
        vars(trainer).pop(method, None)


def _matches(callback: Callback, key: object) -> bool:
    return key == type(callback).__name__ or (isinstance(key, type) and isinstance(callback, key))
