"""Every path through a piece of the program, as far as their number stays bounded."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..source import Sources
from .domain import Unknown, Value
from .signals import Exhausted, Signal
from .statements import Interpreter

MOST_PATHS = 32
MOST_STEPS = 200_000


class Outcome(NamedTuple):
    """What one path led to."""

    value: Value
    run: Interpreter


def explore(sources: Sources, start: Callable[[Interpreter], Value]) -> Iterator[Outcome]:
    """Run `start` once for every way its undecidable branches may go.

    A path that raises leads to no outcome. Where there are too many paths, or one is too
    long, the last outcome is unknown, so that nothing counts as certain.
    """
    pending: list[tuple[bool, ...]] = [()]
    steps = min(MOST_STEPS, sources.steps)
    for _ in range(MOST_PATHS):
        if not pending:
            return
        run = Interpreter(sources, pending.pop(), steps=steps)
        run.prepare()
        outcome: Outcome | None = None
        is_over = False
        try:
            outcome = Outcome(start(run), run)
        except Signal:
            pass
        except (Exhausted, RecursionError):
            outcome, is_over = Outcome(Unknown("is too long to follow"), run), True
        sources.steps -= max(steps - run.steps, 1)
        if outcome is not None:
            yield outcome
        if is_over:
            return
        pending += run.untried
        steps = run.steps
    if pending:
        yield Outcome(Unknown("has too many branches to follow"), run)
