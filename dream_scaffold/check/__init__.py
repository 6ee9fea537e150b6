"""`dream check` and `dream explain`: read a project's source, never import or run it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .engine import Result, check
    from .options import Options
    from .session import explain, run

__all__ = ["Options", "Result", "check", "explain", "run"]


def __getattr__(name: str) -> object:
    # The engine is imported when it is first used, so that `dream --help` need not.
    if name == "Options":
        from .options import Options

        return Options
    if name in ("explain", "run"):
        from . import session

        return getattr(session, name)
    if name in __all__:
        from . import engine

        return getattr(engine, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
