"""What `python train.py` can tell of a run besides its losses: time, traces, graph breaks."""

import re
import subprocess
import sys
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from json import dumps
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..configs import DreamTrainerConfig
from ..processes import Process
from .commands import Main, MakeConfig, register_command
from .entrypoint import train
from .modifiers import no_ckpt, no_log

if TYPE_CHECKING:
    from ..callbacks import Callback

Skip = Annotated[int, typer.Option(min=0, help="Steps before it begins.")]


@register_command("benchmark")
def benchmark(
    main: Main,
    make_config: MakeConfig,
    *,
    skip: Annotated[int, typer.Option(min=1, help="Steps before it begins.")] = 8,
    print_every: Annotated[int, typer.Option(min=1, help="Windows from line to line.")] = 1,
    window_size: Annotated[int, typer.Option(min=1, help="Steps of a window.")] = 4,
    windows: Annotated[int, typer.Option(min=1, help="Windows to time.")] = 8,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Train a few steps and say where their time goes: data, forward, backward, optimizer.

    With throughput, and the share of the device's peak where that is known. Nothing is saved.
    """
    from ..callbacks.benchmark import BenchmarkCallback

    config = make_config()
    callback = BenchmarkCallback(skip, print_every, window_size, windows)
    with redirect_stdout(sys.stderr) if json else nullcontext():
        _diagnose(main, config, callback, skip + windows * window_size)
    if json and callback.report and Process.from_environment().rank == 0:
        print(dumps(callback.report))
    return 0


@register_command("profile")
def profile(
    main: Main,
    make_config: MakeConfig,
    *,
    skip: Skip = 5,
    warmup: Annotated[int, typer.Option(min=0, help="Steps that are not kept.")] = 1,
    cycle: Annotated[int, typer.Option(min=1, help="Steps of one trace.")] = 4,
    repeat: Annotated[int, typer.Option(min=1, help="Traces, each after a warm-up.")] = 1,
    with_stack: Annotated[bool, typer.Option("--with-stack", help="Python's lines too.")] = False,
    output_dir: Annotated[
        Path | None, typer.Option(help="Default: profile/ in the folder of the run.")
    ] = None,
) -> int:
    """Train a few steps and write what host and device did, for https://ui.perfetto.dev."""
    from ..callbacks.profiler import ProfileCallback

    config = make_config()
    callback = ProfileCallback(skip, warmup, cycle, repeat, with_stack, output_dir, stop=True)
    _diagnose(main, config, callback, skip + repeat * (warmup + cycle))
    return 0


@register_command("find-graph-breaks")
def find_graph_breaks(
    main: Main,
    make_config: MakeConfig,
    *,
    output_path: Annotated[Path, typer.Option(help="Reasons and stacks.")] = Path(
        "graph_breaks.log"
    ),
    skip: Skip = 5,
) -> int:
    """Train a few steps and say what in the models the compiler cannot keep in one graph."""
    from ..callbacks.graph_breaks import FindGraphBreaksCallback

    config = make_config()
    callback = FindGraphBreaksCallback(output_path, skip, stop=True)
    _diagnose(main, config, callback, skip + 1)
    return 0


@register_command("importtime")
def importtime(
    main: Main,
    make_config: MakeConfig,
    *,
    top: Annotated[int, typer.Option(min=1, help="Packages to show.")] = 15,
) -> int:
    """Say which packages the script spends its start on, with all that they import in turn."""
    script = Path(sys.argv[0]).resolve()
    code = (
        f"import runpy, sys; sys.path[0] = {str(script.parent)!r}; "
        f"runpy.run_path({str(script)!r}, run_name='importtime')"
    )
    command = [sys.executable, "-X", "importtime", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(re.sub(r"(?m)^import time:.*\n", "", done.stderr))
        return done.returncode
    cumulative, total = package_times(done.stderr)
    print(f"{'ms':>8}{'share':>8}  package, with what it was the first to import")
    for package in sorted(cumulative, key=lambda name: -cumulative[name])[:top]:
        time = cumulative[package]
        print(f"{time / 1e3:>8.1f}{time / total:>8.0%}  {package}")
    print(f"{total / 1e3:>8.1f}{1:>8.0%}  all imports")
    return 0


def package_times(report: str) -> tuple[dict[str, int], int]:
    """Of `-X importtime`: top-level package -> its microseconds, with what it imports; the total.

    A package's modules inside others of its own are not counted twice.
    """
    cumulative: dict[str, int] = {}
    total = 0
    above: list[tuple[int, str]] = []
    lines = re.findall(r"(?m)^import time:\s*(\d+) \|\s*(\d+) \| ( *)(\S+)$", report)
    for own, time, indent, module in reversed(lines):  # Importers come after what they import.
        while above and above[-1][0] >= len(indent):
            above.pop()
        package = module.partition(".")[0]
        if package not in (name for _, name in above):
            cumulative[package] = cumulative.get(package, 0) + int(time)
        above.append((len(indent), package))
        total += int(own)
    return cumulative, total


def _diagnose(main: Main, config: Any, callback: "Callback", steps: int) -> None:
    """Run `main` for `steps` steps with `callback`: no validation, no checkpoint, no log.

    The callback ends the run: a learning rate that falls until `max_steps` stays what it is.
    """
    training = config.training_parameters
    limit = training.max_steps
    config.training_parameters = replace(
        training,
        n_epochs=inf,
        max_steps=None if limit is None else max(limit, steps),
        val_steps_per_epoch=0,
        num_sanity_val_steps=0,
    )
    if isinstance(config, DreamTrainerConfig):
        no_ckpt(config, True)
        no_log(config, True)  # Nor does it append to the log of a run of that name.
    config.extra_callbacks = (*config.extra_callbacks, callback)
    train(main, config)
