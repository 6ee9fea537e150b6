"""Whether `dream check` says of a project what the runtime then does with it."""

import io
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

from truth_cases import Case
from truth_runtime import Truth, runtime_says

from dream_scaffold.check import Options, check

FAMILIES = ("DT1", "DT2")
"""The rules that are compared."""


def checker_says(case: Case) -> dict[str, set[str]]:
    """Severity -> codes, of the project in this folder."""
    nodes = case.world_size // case.nproc if case.nproc else None
    options = Options(
        paths=("train.py",),
        world_size=None if case.nproc else case.world_size,
        nproc_per_node=case.nproc,
        nnodes=nodes,
    )
    found: dict[str, set[str]] = {"error": set(), "warning": set(), "info": set()}
    for finding in check(options).findings:
        found[finding.severity].add(finding.code)
    return found


@dataclass
class Verdict:
    """Whether both say the same of a case."""

    case: Case
    truth: Truth
    found: dict[str, set[str]]
    faults: list[str] = field(default_factory=list)
    unknown: int = 0
    """Faults that source cannot show, by construction of the case."""

    latent: bool = False
    """Whether a hook that cannot be called is reported, and is not called at this size."""

    @property
    def outcome(self) -> str:
        if self.truth.unexplained:
            return "unexplained"
        if self.truth.beyond:
            return "beyond the rules"
        if not self.truth.faults:
            return "sets up"
        return "refused" if self.truth.stopped else "runs, to no effect"


def judge(case: Case, truth: Truth, found: dict[str, set[str]]) -> Verdict:
    """Hold what a check found against what happened."""
    verdict = Verdict(case, truth, found)
    errors = found["error"]
    for fault in truth.faults:
        enough = errors | (found["warning"] if fault.codes == {"DT211"} else set())
        if fault.codes & enough:
            continue
        behind = {fault.hook, "configure_models"}
        # Which parameters are trained is what `configure_optimizers` says.
        behind |= {"configure_optimizers"} if "trained parameters" in fault.text else set()
        # Where a pipeline is cut, another rank's stage may be the one that the plan names.
        elsewhere = truth.is_cut and fault.text == "apply_tensor_parallel left no module split"
        if case.undecidable or elsewhere or behind & case.opaque:
            verdict.unknown += 1
        else:
            verdict.faults.append(f"missed {'/'.join(sorted(fault.codes))}: {fault.text}")
    if truth.unexplained and not any(code.startswith(FAMILIES) for code in errors):
        if case.undecidable or {truth.hook, "configure_models"} & case.opaque:
            verdict.unknown += 1
        else:
            verdict.faults.append(f"missed: {truth.unexplained}")
    if not truth.stopped:
        known = set().union(*(fault.codes for fault in truth.faults))
        wrong = {code for code in errors - known if code.startswith(FAMILIES)}
        if truth.misfits and "DT204" in wrong:
            verdict.latent, wrong = True, wrong - {"DT204"}
        verdict.faults += [f"false alarm {code}" for code in sorted(wrong)]
    return verdict


def try_case(case: Case, folder: Path) -> Verdict:
    """Write the project into `folder`, set it up and check it there."""
    for name, text in case.files.items():
        (folder / name).write_text(text)
    before = Path.cwd()
    os.chdir(folder)
    sys.dont_write_bytecode, written = True, sys.dont_write_bytecode
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            truth = runtime_says(folder, case)
        try:
            found = checker_says(case)
        except Exception as error:
            return Verdict(case, truth, {}, [f"crash of the checker: {error!r}"])
        return judge(case, truth, found)
    finally:
        sys.dont_write_bytecode = written
        os.chdir(before)
