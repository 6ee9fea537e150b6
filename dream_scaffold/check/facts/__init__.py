"""What a rule may know: the project as read from its source, in frozen records.

Every fact is true, false or unknown. Nothing here reads a file or evaluates source.
"""

from .behaviour import Behaviour, Kind, Model, Script
from .findings import ORDER, Edit, Fault, Finding, Fix, Match, Note, Place, Severity
from .project import Configuration, HookProblem, Method, Need, Project, Setting, Signature, Trainer
from .rule import Rule
from .spots import CallSpot, Spot
from .terms import (
    Attribute,
    Call,
    Code,
    Constant,
    Derived,
    Display,
    Either,
    Foreign,
    Item,
    Path,
    Term,
    Unsure,
)
from .traces import Act, Guard, Trace, is_within

__all__ = [
    "ORDER",
    "Act",
    "Attribute",
    "Behaviour",
    "Call",
    "CallSpot",
    "Code",
    "Configuration",
    "Constant",
    "Derived",
    "Display",
    "Edit",
    "Either",
    "Fault",
    "Finding",
    "Fix",
    "Foreign",
    "Guard",
    "HookProblem",
    "Item",
    "Kind",
    "Match",
    "Method",
    "Model",
    "Need",
    "Note",
    "Path",
    "Place",
    "Project",
    "Rule",
    "Script",
    "Setting",
    "Severity",
    "Signature",
    "Spot",
    "Term",
    "Trace",
    "Trainer",
    "Unsure",
    "is_within",
]
