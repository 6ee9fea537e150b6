"""What runs on one rank alone must not wait for the others."""

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from ..configs import RunError


class Alone(TorchDispatchMode):
    """Raises `RunError` at a collective, which would wait for ranks that never come."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func.namespace in ("c10d", "_c10d_functional", "c10d_functional"):
            raise RunError(
                f"{self.place} runs on rank 0 alone, but calls {func}, which needs every rank. "
                "Derive from Callback, and guard only what writes or prints."
            )
        return func(*args, **(kwargs or {}))


class FirstCallAlone:
    """An event's handler, watched by `Alone` the first time that it is called."""

    def __init__(self, handler: Callable[..., Any]) -> None:
        self.handler = handler
        self.was_called = False

    def __call__(self, *args: Any) -> Any:
        if self.was_called:
            return self.handler(*args)
        self.was_called = True
        with Alone(self.handler.__qualname__):
            return self.handler(*args)
