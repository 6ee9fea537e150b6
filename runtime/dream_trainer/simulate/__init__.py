"""The dry run: one process is rank r of N, on fake tensors, and reports what a step would take.

    report = dry_run(main, fsdp_config, Plan(world_size=4096, local_world_size=8))

`main(config)` runs up to its trainer's `fit`; from there on the run's own set-up and two
training steps follow, on tensors that have shapes and no memory. The second step counts:
the first one makes the optimizer's state.
"""

import contextlib
import dataclasses
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from ..configs import BaseTrainerConfig, HookError, RunError, resolve_axes
from ..trainer import BaseTrainer
from .pretence import pretended_world, replaced
from .rehearsal import Rehearsal, explain
from .report import Finding, Memory, Report, parse_size
from .stages import Boundary

__all__ = ["Finding", "Memory", "Plan", "Report", "dry_run", "parse_size", "rehearsed"]

Main = Callable[[Any], object]
MakeConfig = Callable[[], BaseTrainerConfig]

UNMATCHED = "Parallelize plan key"
"""How torch's warning begins that nothing fits a key of a tensor-parallel plan."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """Which rank of which cluster to try. `memory` is what a device has, in bytes."""

    world_size: int
    local_world_size: int
    rank: int = 0
    memory: int | None = None


def dry_run(main: Main, make_config: MakeConfig, plan: Plan) -> Report:
    """Try what `main(make_config())` would do on `plan.rank`. Leaves no process group behind.

    Whatever is wrong is an entry of `errors` in the report, in the words of a real run;
    the report then ends where the run would have.
    """
    report = Report(plan.rank, plan.world_size, plan.local_world_size)
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(sys.stderr):
        warnings.simplefilter("always")
        try:
            boundary = first_boundary(main, make_config, plan)
            with pretended_world(plan.rank, plan.world_size, plan.local_world_size):
                rehearsal = Rehearsal(reach_fit(main, adapted(make_config(), report)), report)
                rehearsal.run(boundary, plan.memory)
        except HookError as error:
            for line in str(error).splitlines():
                text, _, code = line.rpartition(" [")
                report.add(code.rstrip("]"), text, error.place.strip().removeprefix("--> "))
        except Exception as error:
            if (finding := explain(error)) not in report.errors:
                report.errors.append(finding)
    for warning in caught:
        text = str(warning.message)
        if text.startswith(UNMATCHED):  # Of a pipeline: elsewhere start-up has refused it.
            key = text.split("'")[1]
            report.notes.append(f"this stage has no module for the plan's key {key!r}")
    return report


@contextlib.contextmanager
def rehearsed(main: Main, make_config: MakeConfig, plan: Plan) -> Iterator[BaseTrainer]:
    """The trainer of `plan.rank`, set up on tensors without memory, with no step taken.

    Raises what a real set-up would.
    """
    report = Report(plan.rank, plan.world_size, plan.local_world_size)
    with pretended_world(plan.rank, plan.world_size, plan.local_world_size):
        with contextlib.redirect_stdout(sys.stderr):
            trainer = reach_fit(main, adapted(make_config(), report))
            Rehearsal(trainer, report).set_up()
        yield trainer


def first_boundary(main: Main, make_config: MakeConfig, plan: Plan) -> Boundary | None:
    """What pipeline stages pass on, found on the rank with the first one; None without a pipeline.

    Later stages cannot know it: in a real run they are told.
    """
    config = make_config()
    axes = resolve_axes(config.device_parameters, plan.world_size, plan.local_world_size)
    if axes.pp == 1:
        return None
    report = Report(plan.rank, plan.world_size, plan.local_world_size)
    first = plan.rank % (plan.world_size // axes.pp)  # pp is the outermost axis.
    with pretended_world(first, plan.world_size, plan.local_world_size):
        return Rehearsal(reach_fit(main, adapted(config, report)), report).probe()


def adapted(config: BaseTrainerConfig, report: Report) -> BaseTrainerConfig:
    """`config` without what a dry run leaves out, each with a note."""
    device, training = config.device_parameters, config.training_parameters
    if device.compile_model:
        report.notes.append("compile_model is off here: the figures are those of eager code")
    if training.gradient_accumulation_steps > 1:
        report.notes.append("gradients are not accumulated: the figures are those of one batch")
    if device.context_parallel != 1:
        report.notes.append("attention over cp is that of a CPU: it gathers keys and values")
    return dataclasses.replace(
        config,
        device_parameters=dataclasses.replace(
            device, compile_model=False, async_tensor_parallel=None, error_if_nonfinite=False
        ),
        training_parameters=dataclasses.replace(
            training, gradient_accumulation_steps=1, startup_checks=True
        ),
        callbacks=(),
        extra_callbacks=(),
    )


class _Reached(BaseException):
    """`main` has come to `fit`."""

    def __init__(self, trainer: BaseTrainer) -> None:
        self.trainer = trainer


def reach_fit(main: Main, config: BaseTrainerConfig) -> BaseTrainer:
    """The trainer whose `fit` is the first that `main(config)` calls."""

    def fit(trainer: BaseTrainer) -> None:
        raise _Reached(trainer)

    with replaced(BaseTrainer, {"fit": fit}):
        try:
            main(config)
        except _Reached as reached:
            return reached.trainer
    raise RunError("main(config) ended without a call of fit(), so there is nothing to try.")
