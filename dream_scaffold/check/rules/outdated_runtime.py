"""The project's copy of the runtime has another version than the checker.

Rules about presets, axes and hooks are asked of the runtime that the checker was
shipped with. Where the project's own copy differs, a finding may not hold for it.

Bad:

    dream_trainer/__init__.py: __version__ = "0.0.9"    (dream 0.1.0)

Good: both have the same version.

How to fix: run `dream update`, which brings the runtime up to date and keeps your
changes, or install the `dream` of the project's version.
"""

from collections.abc import Iterator

from ..facts import Match, Project, Severity

CODE = "DT003"
NAME = "outdated-runtime"
SEVERITY: Severity = "warning"

PASSES = (
    """
    x = 1
    """,
)

MATCHES = (
    """
    --- dream_trainer/__init__.py
    __version__ = "0.0.1"
    --- dream_trainer/contract.py
    --- dream_trainer/configs/__init__.py
    --- train.py
    config = DreamTrainerConfig()
    """,
)


def check(project: Project) -> Iterator[Match]:
    yield from project.refused(CODE)
