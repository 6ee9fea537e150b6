"""A file cannot be parsed.

The rest of the project is still checked, but what the file defines stays unknown: a
trainer or a factory in it is not seen at all.

Bad:

    def fsdp_config(:
        ...

Good:

    def fsdp_config():
        ...

How to fix: correct the line that the message names. `python -m py_compile FILE` says
the same of the file alone.
"""

from collections.abc import Iterator

from ..facts import Match, Project, Severity

CODE = "DT000"
NAME = "syntax-error"
SEVERITY: Severity = "error"

PASSES = (
    """
    x = 1
    """,
    """
    text = "def f(:"
    """,
)

MATCHES = (
    """
    def f(:
        pass
    """,
    """
    class MyTrainer(Complete):
      def a(self):
     pass
    """,
)


def check(project: Project) -> Iterator[Match]:
    yield from project.refused(CODE)
