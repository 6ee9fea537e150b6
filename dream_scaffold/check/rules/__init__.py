"""Every rule, one a file. A new one is written, listed here, and has a code of its family."""

from ...errors import DreamError
from ..facts import Rule
from . import (
    async_tp_needs_compile,
    axes_misfit,
    backward_by_hand,
    bad_degree,
    bad_value,
    contradictory_checkpoints,
    forced_both_ways,
    hook_signature,
    missing_hook,
    missing_required_hook,
    misspelt_hook,
    model_left_out,
    outdated_runtime,
    several_auto_axes,
    stub_hook,
    syntax_error,
    tp_across_nodes,
    undecided_value,
    unknown_field,
    unsupported_layout,
    unused_hook,
    unused_suppression,
)

RULES: tuple[Rule, ...] = (
    syntax_error,
    unused_suppression,
    undecided_value,
    outdated_runtime,
    several_auto_axes,
    axes_misfit,
    async_tp_needs_compile,
    bad_degree,
    forced_both_ways,
    tp_across_nodes,
    unknown_field,
    contradictory_checkpoints,
    bad_value,
    unsupported_layout,
    missing_hook,
    stub_hook,
    unused_hook,
    hook_signature,
    misspelt_hook,
    missing_required_hook,
    model_left_out,
    backward_by_hand,
)
"""In the order of their codes."""


def rule_of(code: str) -> Rule:
    """The rule that has a code. Raises `DreamError`."""
    for rule in RULES:
        if code.upper() in (rule.CODE, rule.NAME.upper()):
            return rule
    raise DreamError(f"{code} is no rule.", "`dream explain` lists all rules.")
