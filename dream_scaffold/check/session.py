"""One run of `dream check`, from the command line to an exit code."""

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from io import TextIOWrapper

from ..errors import DreamError, tell
from .engine import check
from .options import Options
from .rules import RULES, rule_of

OFFERING = ("json", "sarif")
"""Formats for programs, which are told of every fix."""


def run(options: Options) -> int:
    """Check a project and print what was found. The exit code: 0, 1, or 2 for no check at all."""
    from .report import render

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Names and paths may hold what the terminal cannot show.
            stream.reconfigure(errors="backslashreplace")
    try:
        overlay = _standard_input(options)
        if options.watch:
            from .watch import watch

            return watch(options, lambda: run(replace(options, watch=False)))
        if options.fix or options.diff:
            return _fix(options, overlay)
        result = check(options, overlay)
        if result.options.output_format in OFFERING:
            from .fix.proposals import with_fixes

            result = replace(result, findings=with_fixes(result))
        text = render(result)
    except DreamError as error:
        tell(error, as_json=options.output_format == "json")
        return 2
    if text:
        print(text)
    return result.exit_code


def _fix(options: Options, overlay: Mapping[str, str]) -> int:
    """Carry out fixes, or show them; then print what is left. The exit code."""
    from .fix.run import differences, fix, write_all
    from .report import render

    fixed = fix(options, overlay)
    if options.diff:
        lines = list(differences(fixed))
        if lines:
            print("\n".join(lines))
        told = f"Would fix {fixed.count}." if fixed.count else "Nothing to fix."
        print(told, file=sys.stderr)
        return int(bool(lines) and not options.exit_zero)
    if options.stdin_filename is not None:
        # The text goes on, whatever is left to be found in it.
        sys.stdout.write(fixed.after[os.path.abspath(options.stdin_filename)])
        return fixed.result.exit_code
    write_all(fixed)
    text = render(fixed.result)
    if text:
        print(text)
    if (options.output_format or "full") in ("full", "concise") and fixed.count:
        print(f"Fixed {fixed.count}.")
    return fixed.result.exit_code


def explain(code: str | None, json: bool = False) -> str:
    """The manual of one rule, or the list of all. Raises `DreamError` for no such rule."""
    from .report.manual import as_json, list_rules, manual

    if json:
        return as_json(RULES if code is None else [rule_of(code)], one=code is not None)
    if code is None:
        return list_rules(RULES)
    return manual(rule_of(code))


def _standard_input(options: Options) -> dict[str, str]:
    if options.stdin_filename is None:
        return {}
    raw = sys.stdin.buffer.read()
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        if options.fix:
            fact = "Standard input is not UTF-8, and could not be given back as it was."
            raise DreamError(fact, "Fix the file itself.") from None
        text = raw.decode("utf-8", errors="replace")
    return {os.path.abspath(options.stdin_filename): text}
