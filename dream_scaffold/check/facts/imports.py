"""What happens when a module is merely imported."""

from .spots import Spot
from .terms import Constant, Derived
from .traces import Act


def runs_at_import(act: Act) -> bool:
    """Whether an act of a module's top level happens in every process that imports it."""
    for guard in act.guards:
        if guard.kind == "callback":
            return False
        if guard.kind == "if" and _asks_for_main(guard.test):
            return False
    return True


def _asks_for_main(test: object) -> bool:
    parts = test.of if isinstance(test, Derived) else ()
    return any(
        (isinstance(part, Constant) and part.value == "__main__") or _asks_for_main(part)
        for part in parts
    )


def statement_of(act: Act) -> Spot:
    """Where the top level does it, or calls what does."""
    return act.via[0] if act.via else act.spot
