"""What the runtime makes of a project on a pretended process group, and what a check says."""

import importlib
import io
import os
import re
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.distributed._composable.contract import _get_registry
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from truth_cases import Case

from dream_scaffold.check import Options, check
from dream_trainer.checks.explain import explained
from dream_trainer.configs import ConfigError, HookError, RunError
from dream_trainer.contract import BY_NAME, callers
from dream_trainer.simulate import dry_run
from dream_trainer.simulate.pretence import pretended_world
from dream_trainer.simulate.rehearsal import Rehearsal
from dream_trainer.simulate.report import Report

reach_fit = sys.modules[dry_run.__module__].reach_fit
MODULES = ("train", "config", "trainers", "networks")
FAMILIES = ("DT1", "DT2")

KINDS = {
    "apply_tensor_parallel": "split",
    "apply_activation_checkpointing": "recomputed",
    "apply_compile": "compiled",
    "apply_fully_shard": "sharded",
    "apply_replicate": "replicated",
}
"""Hook -> the mark that its work leaves on a module."""

UNFIT = re.compile(
    r"(takes .*positional argument|missing \d+ required|unexpected keyword|multiple values)"
)

REFUSALS = (
    ("apply_fully_shard left", {"DT208", "DT210"}),
    ("apply_fully_shard put", {"DT209"}),
    ("apply_replicate left", {"DT207", "DT210"}),
    ("is sharded before apply_fully_shard", {"DT214"}),
    ("shards a module inside one", {"DT208"}),
    ("fully_shard got no mesh", {"DT209"}),
    ("No module matches", {"DT211"}),
    ("cannot divide", {"DT213"}),
)
"""How a refusal at start-up that carries no code begins -> the rules that stand for it."""


class Fault(NamedTuple):
    """Something that is wrong: any of `codes` names it."""

    codes: frozenset[str]
    text: str
    stops: bool


@dataclass
class Truth:
    """What the runtime did with a project."""

    faults: list[Fault] = field(default_factory=list)
    unexplained: str = ""
    """An error for which no rule stands."""

    @property
    def stopped(self) -> bool:
        return any(fault.stops for fault in self.faults) or bool(self.unexplained)

    def add(self, text: str, *codes: str, stops: bool = False) -> None:
        self.faults.append(Fault(frozenset(codes), text, stops))


class TimeUp(BaseException):
    """A case took too long."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise `TimeUp` in what lasts longer."""

    def ring(*_: object) -> None:
        raise TimeUp

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def marks(trainer: Any) -> set[tuple[str, str]]:
    """(kind, module) of everything that parallelism has left on the models."""
    found = set()
    for root, model in trainer.named_models().items():
        for path, module in model.named_modules(prefix=root):
            registry = _get_registry(module) or ()
            here = {
                "sharded": isinstance(module, FSDPModule),
                "replicated": "replicate" in registry,
                "recomputed": "checkpoint" in registry,
                "compiled": module._compiled_call_impl is not None,
                "split": any(_is_split(p) for p in module._parameters.values()),
            }
            found |= {(kind, path) for kind, holds in here.items() if holds}
    return found


def _is_split(parameter: object) -> bool:
    names = parameter.device_mesh.mesh_dim_names if isinstance(parameter, DTensor) else None
    return names == ("tp",)


def watch(trainer: Any, truth: Truth) -> None:
    """Note what each parallelism hook that runs leaves on the models."""
    for name, kind in KINDS.items():
        if hasattr(type(trainer), name):
            setattr(trainer, name, _watched(trainer, name, kind, truth))


def _watched(trainer: Any, name: str, kind: str, truth: Truth) -> Any:
    hook = getattr(trainer, name)

    def run(*args: Any) -> Any:
        before = marks(trainer)
        done = hook(*args)
        new = {kind for kind, _ in marks(trainer) - before}
        accepted = {kind, "sharded"} if name == "apply_replicate" else {kind}
        if not new & accepted:
            truth.add(f"{name} left no module {kind}", "DT202", "DT207")
        for other in sorted(new - accepted):
            truth.add(f"{name} left modules {other}", "DT214")
        if name == "apply_fully_shard":
            _note_foreign(trainer, args[0], truth)
        return done

    return run


def _note_foreign(trainer: Any, config: dict[str, Any], truth: Truth) -> None:
    modules = [part for model in trainer.named_models().values() for part in model.modules()]
    states = [part._get_fsdp_state() for part in modules if isinstance(part, FSDPModule)]
    if any(state._mp_policy != config["mp_policy"] for state in states):
        truth.add("fully_shard without its config", "DT209")


def explain(error: BaseException, models: dict[str, Any], truth: Truth) -> None:
    """The rules that stand for what ended a set-up."""
    text = str(error)
    if isinstance(error, ConfigError):
        truth.add(text, error.code, stops=True)
        return
    if isinstance(error, HookError):
        for line in text.splitlines():
            said, _, code = line.rpartition(" [")
            if code:
                truth.add(said, code.rstrip("]"), stops=True)
        return
    if not isinstance(error, RunError) and (told := explained(error, models)) is not None:
        text = str(told)
    for start, codes in REFUSALS:
        if start in text:
            if not any("DT207" in fault.codes for fault in truth.faults):
                truth.add(text, *codes, stops=True)
            return
    if isinstance(error, NotImplementedError):
        truth.add(f"a stub was called: {text}", "DT202", stops=True)
    elif isinstance(error, TypeError) and UNFIT.search(text):
        codes = ("DT107", "DT112") if "keyword" in text else ("DT204",)
        truth.add(text, *codes, stops=True)
    elif not truth.stopped:
        truth.unexplained = f"{type(error).__name__}: {text}"


def probe_steps(trainer: Any, truth: Truth) -> None:
    """Call what a set-up leaves for later: the hooks of a step."""
    parameters, axes = trainer.config.device_parameters, trainer.world.axes
    steps: dict[str, tuple[Any, ...]] = {"training_step": (None, 0)}
    if callers(BY_NAME["context_parallel_buffers"], parameters, axes.sizes):
        steps["context_parallel_buffers"] = (None,)
    if type(trainer).validation_step is not _validation_step():
        steps["validation_step"] = (None, 0)
    for name, arguments in steps.items():
        try:
            value = getattr(trainer, name)(*arguments)
        except Exception as error:
            explain(error, {}, truth)
            continue
        if value is None and name != "validation_step":
            truth.add(f"{name} returned nothing", "DT202")


def _validation_step() -> Any:
    from dream_trainer import DreamTrainer

    return DreamTrainer.validation_step


def runtime_says(folder: Path, case: Case) -> Truth:
    """Set the project in `folder` up as one rank of many; leaves no module of it behind."""
    truth, models = Truth(), {}
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    local = case.nproc or case.world_size
    report = Report(case.rank, case.world_size, local)
    try:
        with warnings.catch_warnings(), at_most(20), pretended_world(
            case.rank, case.world_size, local
        ):
            warnings.simplefilter("ignore")
            module = importlib.import_module("train")
            trainer = reach_fit(module.main, module.my_config())
            watch(trainer, truth)
            rehearsal = Rehearsal(trainer, report)
            try:
                rehearsal.set_up()
            except Exception:
                with suppress(Exception):
                    models = trainer.named_models()
                raise
            if report.errors:
                truth.unexplained = str(report.errors[0])
            probe_steps(trainer, truth)
    except TimeUp:
        truth.unexplained = "time is up"
    except Exception as error:
        explain(error, models, truth)
    finally:
        sys.path.remove(str(folder))
        for name in MODULES:
            sys.modules.pop(name, None)
        torch._dynamo.reset()
    return truth


def checker_says(case: Case) -> dict[str, set[str]]:
    """Severity -> codes of the families that are compared, of the project in this folder."""
    nodes = case.world_size // case.nproc if case.nproc else None
    options = Options(
        paths=("train.py",),
        world_size=None if case.nproc else case.world_size,
        nproc_per_node=case.nproc,
        nnodes=nodes,
    )
    found: dict[str, set[str]] = {"error": set(), "warning": set(), "info": set()}
    for finding in check(options).findings:
        if finding.code.startswith(FAMILIES):
            found[finding.severity].add(finding.code)
    return found


@dataclass
class Verdict:
    """Whether both say the same of a case."""

    case: Case
    truth: Truth
    found: dict[str, set[str]]
    faults: list[str] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        if self.truth.unexplained:
            return "unexplained"
        if not self.truth.faults:
            return "sets up"
        return "refused" if self.truth.stopped else "runs, to no effect"


def judge(case: Case, truth: Truth, found: dict[str, set[str]]) -> Verdict:
    """Hold what a check found against what happened."""
    verdict = Verdict(case, truth, found)
    errors = found["error"]
    for fault in truth.faults:
        enough = errors | (found["warning"] if fault.codes == {"DT211"} else set())
        if not fault.codes & enough and not case.undecidable:
            verdict.faults.append(f"missed {'/'.join(sorted(fault.codes))}: {fault.text}")
    if truth.unexplained and not errors:
        verdict.faults.append(f"missed: {truth.unexplained}")
    if not truth.stopped:
        known = set().union(*(fault.codes for fault in truth.faults))
        verdict.faults += [f"false alarm {code}" for code in sorted(errors - known)]
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
        return judge(case, truth, checker_says(case))
    finally:
        sys.dont_write_bytecode = written
        os.chdir(before)
