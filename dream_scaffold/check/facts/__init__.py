"""What a rule may know: the project as read from its source, in frozen records.

Every fact is true, false or unknown. Nothing here reads a file or evaluates source.
"""

from .findings import ORDER, Edit, Fault, Finding, Fix, Match, Note, Place, Severity
from .project import Configuration, HookProblem, Method, Need, Project, Signature, Trainer
from .rule import Rule

__all__ = [
    "ORDER",
    "Configuration",
    "Edit",
    "Fault",
    "Finding",
    "Fix",
    "HookProblem",
    "Match",
    "Method",
    "Need",
    "Note",
    "Place",
    "Project",
    "Rule",
    "Severity",
    "Signature",
    "Trainer",
]
