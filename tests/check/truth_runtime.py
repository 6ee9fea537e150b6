"""What the runtime makes of a project on a pretended process group."""

import importlib
import inspect
import re
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.distributed._composable.contract import _get_registry
from torch.distributed._composable.replicate import replicate
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from truth_cases import Case

from dream_trainer.checks.explain import explained
from dream_trainer.configs import ConfigError, HookError, RunError
from dream_trainer.contract import BY_NAME, callers
from dream_trainer.simulate import reach_fit
from dream_trainer.simulate.pretence import pretended_world
from dream_trainer.simulate.rehearsal import Rehearsal
from dream_trainer.simulate.report import Report

MODULES = ("train", "config", "trainers", "networks")

KINDS = {
    "apply_tensor_parallel": "split",
    "apply_activation_checkpointing": "recomputed",
    "apply_compile": "compiled",
    "apply_fully_shard": "sharded",
    "apply_replicate": "replicated",
}
"""Hook -> the mark that its work leaves on a module."""

STEPS = ("context_parallel_buffers", "training_step", "validation_step", "count_items")
"""Hooks that a set-up does not call."""

UNFIT = re.compile(
    r"(takes .*positional argument|missing \d+ required|unexpected keyword|multiple values)"
)

BEYOND = ("layers cannot fill",)
"""Refusals that no rule is about: how many layers a model has, source need not show."""

REFUSALS = (
    ("apply_fully_shard left", {"DT208", "DT210"}),
    ("apply_fully_shard put", {"DT209"}),
    ("apply_replicate left", {"DT207", "DT210"}),
    ("is sharded before apply_fully_shard", {"DT214"}),
    ("shards a module inside one", {"DT208", "DT209"}),
    ("fully_shard got no mesh", {"DT209"}),
    ("No module matches", {"DT211"}),
    ("cannot divide", {"DT213"}),
    ("configure_optimizers returned", {"DT202", "DT603"}),
)
"""How a refusal at start-up that carries no code begins -> the rules that stand for it."""


class Fault(NamedTuple):
    """Something that is wrong: any of `codes` names it."""

    codes: frozenset[str]
    text: str
    stops: bool
    hook: str = ""


@dataclass
class Truth:
    """What the runtime did with a project."""

    faults: list[Fault] = field(default_factory=list)
    unexplained: str = ""
    """An error for which no rule stands."""

    beyond: bool = False
    """Whether it was refused for what the rules are not about."""

    is_cut: bool = False
    """Whether each rank holds only stages of the models."""

    misfits: list[str] = field(default_factory=list)
    """Hooks that could not be called, and were not."""

    @property
    def stopped(self) -> bool:
        stops = any(fault.stops for fault in self.faults)
        return stops or self.beyond or bool(self.unexplained)

    hook: str = ""
    """The last that was called."""

    def add(self, text: str, *codes: str, stops: bool = False) -> None:
        self.faults.append(Fault(frozenset(codes), text, stops, self.hook))


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


@contextmanager
def compiling() -> Iterator[list[object]]:
    """The modules whose `compile` is called inside, those that were compiled before included."""
    called: list[object] = []
    compile_module = torch.nn.Module.compile

    def record(module: torch.nn.Module, *args: Any, **options: Any) -> None:
        called.append(module)
        compile_module(module, *args, **options)

    torch.nn.Module.compile = record  # type: ignore[method-assign]
    try:
        yield called
    finally:
        torch.nn.Module.compile = compile_module  # type: ignore[method-assign]


def watch(trainer: Any, truth: Truth) -> None:
    """Note what each parallelism hook that runs leaves on the models."""
    for name in BY_NAME:
        if name in KINDS and hasattr(type(trainer), name):
            setattr(trainer, name, _watched(trainer, name, KINDS[name], truth))
        elif name not in STEPS and hasattr(type(trainer), name):
            setattr(trainer, name, _noted(trainer, name, truth))


def _noted(trainer: Any, name: str, truth: Truth) -> Any:
    hook = getattr(trainer, name)

    def run(*args: Any) -> Any:
        truth.hook = name
        return hook(*args)

    return run


def _watched(trainer: Any, name: str, kind: str, truth: Truth) -> Any:
    hook = getattr(trainer, name)

    def run(*args: Any) -> Any:
        truth.hook = name
        before = marks(trainer)
        truth.is_cut = trainer.world.axes.sizes["pp"] > 1
        with compiling() as compiled:
            done = hook(*args)
        new = {kind for kind, _ in marks(trainer) - before} | ({"compiled"} if compiled else set())
        accepted = {kind, "sharded"} if name == "apply_replicate" else {kind}
        if not new & accepted:
            truth.add(f"{name} left no module {kind}", "DT202", "DT207")
        for other in sorted(new - accepted):
            truth.add(f"{name} left modules {other}", "DT214")
        if name == "apply_fully_shard":
            _note_foreign(trainer, args[0], truth)
        if name == "apply_replicate":
            _note_all_ranks(trainer, args[0], truth)
        return done

    return run


def _note_foreign(trainer: Any, config: dict[str, Any], truth: Truth) -> None:
    modules = [part for model in trainer.named_models().values() for part in model.modules()]
    states = [part._get_fsdp_state() for part in modules if isinstance(part, FSDPModule)]
    wanted = _precision(config["mp_policy"])
    if any(_precision(state._mp_policy) != wanted for state in states):
        truth.add("fully_shard without its config", "DT209")


def _note_all_ranks(trainer: Any, mesh: Any, truth: Truth) -> None:
    """Without a mesh, gradients are averaged over all ranks, whatever they hold."""
    modules = [part for model in trainer.named_models().values() for part in model.modules()]
    replicated = [part for part in modules if "replicate" in (_get_registry(part) or ())]
    states = [replicate.state(part) for part in replicated]
    alone = any("device_mesh" not in state._init_kwargs for state in states)
    if alone and mesh.size() < trainer.world.world_size:
        truth.add("replicate without its mesh", "DT209")


def _precision(policy: Any) -> tuple[torch.dtype, torch.dtype]:
    """What a policy computes and reduces in; no dtype is that of the parameters."""
    parameters = policy.param_dtype or torch.float32
    return parameters, policy.reduce_dtype or parameters


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
            seen = [fault for fault in truth.faults if "DT207" in fault.codes]
            truth.add(text, *codes, *(code for fault in seen for code in fault.codes), stops=True)
            return
    if isinstance(error, NotImplementedError):
        truth.add(f"a stub was called: {text}", "DT202", stops=True)
    elif isinstance(error, TypeError) and UNFIT.search(text):
        nameless = "positional argument" in text and "were given" in text
        code = "DT107" if "unexpected" in text or nameless else "DT112"
        code = "DT204" if truth.hook else code
        truth.add(text, code, stops=True)
    elif any(told in text for told in BEYOND):
        truth.beyond = True
    elif not truth.stopped:
        truth.unexplained = f"{type(error).__name__}: {text}"


def probe_steps(trainer: Any, truth: Truth) -> None:
    """Call what a set-up leaves for later: the hooks of a step."""
    parameters, axes = trainer.config.device_parameters, trainer.world.axes
    steps: dict[str, tuple[Any, ...]] = {"training_step": (None, 0)}
    if callers(BY_NAME["context_parallel_buffers"], parameters, axes.sizes):
        steps["context_parallel_buffers"] = (None,)
    if trainer.val_loader is not None and "validation_step" in type(trainer).defined_hooks():
        steps["validation_step"] = (None, 0)
    for name, arguments in steps.items():
        truth.hook = name
        try:
            value = getattr(trainer, name)(*arguments)
        except Exception as error:
            explain(error, {}, truth)
            continue
        if value is None and name != "validation_step":
            truth.add(f"{name} returned nothing", "DT202", "DT505")


def misfits(cls: Any) -> Iterator[str]:
    """The hooks that cannot take the arguments of their contract."""
    for name in cls.defined_hooks():
        try:
            inspect.signature(getattr(cls, name)).bind(None, *BY_NAME[name].parameters)
        except TypeError:
            yield name


def runtime_says(folder: Path, case: Case) -> Truth:
    """Set the project in `folder` up as one rank of many; leaves no module of it behind."""
    truth, models = Truth(), {}
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    local = case.nproc or case.world_size
    report = Report(case.rank, case.world_size, local)
    try:
        with (
            warnings.catch_warnings(),
            at_most(20),
            pretended_world(case.rank, case.world_size, local),
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
            truth.misfits = list(misfits(module.MyTrainer))
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
