"""A `# noqa: DT...` comment suppresses nothing.

It was written for a finding that is gone. Left where it is, it will hide the next one
of its kind without anybody noticing.

Bad:

    class MyTrainer(DreamTrainer):  # noqa: DT201    (no hook is missing)

Good:

    class MyTrainer(DreamTrainer):

How to fix: remove the code, or the comment if no code is left in it. Codes of other
tools and a bare `# noqa` are left alone.
"""

from collections.abc import Iterator

from ..facts import Match, Project, Severity

CODE = "DT001"
NAME = "unused-suppression"
SEVERITY: Severity = "warning"

PASSES = (
    """
    x = 1  # noqa: E501
    """,
    """
    x = 1  # noqa
    """,
    """
    text = "# noqa: DT201"
    """,
    """
    class MyTrainer(DreamTrainer):  # noqa: DT206
        pass
    """,
)

MATCHES = (
    """
    class MyTrainer(Complete):  # noqa: DT201
        pass
    """,
    """
    x = 1  # noqa: E501, DT205
    """,
)


def check(project: Project) -> Iterator[Match]:
    yield from project.unused_suppressions
