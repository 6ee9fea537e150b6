"""Kill a run, resume it, and hold its log against that of a run nobody touched."""

import signal
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from dream_scaffold.project.options import Options
from dream_scaffold.project.render import render_project
from tests.runtime.forked import Ended, Run
from tests.runtime.killed_run import Case
from tests.runtime.remains import Log, differences, left_over, logged_steps, published, read_log
from tests.runtime.traps import OF_A_RESUME, Trap

STOPPED = 75
DIED = -signal.SIGKILL


@dataclass(frozen=True, kw_only=True)
class Moment:
    """When and how a run is killed; at a trap, or a part of its usual life after its start."""

    case: Case
    trap: Trap | None = None
    at: float = 0.0
    number: int = signal.SIGKILL
    spares: bool = False
    """Whether one rank only is killed; the others must notice by themselves."""

    rank: int = 0
    """The rank that is killed at `at`, where others are spared."""

    times: int = 1
    """How often, before the run may end."""

    @property
    def kind(self) -> str:
        return self.trap.point if self.trap else signal.Signals(self.number).name.lower()


@dataclass
class Verdict:
    """What became of a run that was killed and resumed."""

    moment: Moment
    problems: list[str] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    """Logged steps after the newest checkpoint, at each kill."""

    hits: int = 0
    """Kills that found the run alive."""

    seconds: float = 0.0


class Bench:
    """Runs cases below `root`, each against one reference of its values."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.references: dict[Case, tuple[Log, float]] = {}
        self.count = 0

    def folder(self) -> Path:
        self.count += 1
        return self.root / f"run-{self.count}"

    def project(self) -> str:
        """A generated `lm` project."""
        path = self.root / "project"
        if not path.exists():
            render_project(Options(name="lm", recipe="lm", parallel="fsdp"), path)
        return str(path)

    def with_project(self, case: Case) -> Case:
        return replace(case, project=self.project()) if case.loader == "text" else case

    def reference(self, case: Case) -> tuple[Log, float]:
        """Log and seconds of a run that is neither saved nor killed."""
        key = replace(case, behind=False, every=1, name="run")
        if key not in self.references:
            folder = self.folder()
            began = time.monotonic()
            ended = Run(key, folder, "--no-ckpt").wait()
            if any(ended.codes):
                raise RuntimeError(f"{case} fails by itself: {ended.codes}\n{ended.output}")
            log, problems = read_log(folder)
            if problems or {step for step, _ in log} != set(range(1, case.steps + 1)):
                raise RuntimeError(f"{case} logs {sorted(log)}: {problems}")
            self.references[key] = (log, time.monotonic() - began)
        return self.references[key]

    def judge(self, moment: Moment) -> Verdict:
        """Kill a run as `moment` says, resume it to its end, and look at everything."""
        case = self.with_project(moment.case)
        log, life = self.reference(case)
        verdict, folder = Verdict(moment), self.folder()
        began = time.monotonic()
        for attempt in range(moment.times):
            _kill_once(replace(moment, case=case), folder, attempt, life, verdict)
            verdict.lost.append(_lost(folder, case, verdict))
        _finish(case, folder, verdict)
        verdict.problems += differences(folder, log)
        verdict.problems += left_over(folder)
        verdict.seconds = time.monotonic() - began
        return verdict


def _kill_once(moment: Moment, folder: Path, attempt: int, life: float, verdict: Verdict) -> None:
    case, trap = moment.case, moment.trap
    everyone = list(range(case.ranks))
    if trap is not None and trap.point in OF_A_RESUME:
        # Something to clean and to load, before what this is about.
        earlier = replace(trap, point="rename", count=3, rank=0)
        _watch(Run(case, folder, *resumption(folder), traps=(earlier,)), moment, [0], verdict)
    run = Run(case, folder, *resumption(folder), traps=(trap,) if trap else ())
    if trap is not None:
        _watch(run, moment, [trap.rank], verdict)
        return
    # Every attempt has a part of its own of the time that is left.
    time.sleep(life * moment.at / (attempt + 1))
    victims = [moment.rank] if moment.spares else everyone
    has_met, has_trained = run.has_said("run run: "), run.has_said("step ")
    verdict.hits += run.kill(victims, moment.number)
    if not has_met:  # Ranks would wait for each other; launchers see to that.
        run.kill(everyone, moment.number)
    ended = run.wait()
    _look_at(ended, verdict)
    # Before it listens and after its end a process dies of a signal: nothing is lost then.
    listens = has_trained and logged_steps(folder) < case.steps
    if moment.number != signal.SIGKILL and listens and set(ended.codes) != {STOPPED}:
        verdict.problems.append(f"did not stop in order: {ended.codes}\n{ended.output}")


def _watch(run: Run, moment: Moment, victims: list[int], verdict: Verdict) -> None:
    """Wait for the trap; where no rank is spared, the others go with the one in it."""
    if not moment.spares:
        run.wait_for_first()
        run.kill(list(range(moment.case.ranks)), signal.SIGKILL)
    ended = run.wait()
    was_hit = ended.codes[victims[0]] == DIED
    verdict.hits += was_hit
    if not was_hit:
        verdict.problems.append(f"the trap did not spring: {ended.codes}\n{ended.output}")
    _look_at(ended, verdict)


def _look_at(ended: Ended, verdict: Verdict) -> None:
    """Nobody hangs, or shows a traceback."""
    told = f"{ended.codes}\n{ended.output}"
    if ended.hung:
        verdict.problems.append(f"hung: {told}")
    if "Traceback" in ended.output:
        verdict.problems.append(f"a traceback: {told}")


def _lost(folder: Path, case: Case, verdict: Verdict) -> int:
    """Logged steps after the newest checkpoint; every checkpoint must verify."""
    found = published(folder)
    verdict.problems += [problem for checkpoint in found for problem in checkpoint.problems()]
    newest = found[0].manifest.step if found else 0
    lost = max(0, logged_steps(folder) - newest)
    # A save behind training has until the next one is due.
    most = 0 if verdict.moment.number == signal.SIGTERM else case.every * (1 + case.behind)
    if lost > most:
        verdict.problems.append(f"{lost} steps lost, {most} at most may be")
    return lost


def _finish(case: Case, folder: Path, verdict: Verdict) -> None:
    newest = [checkpoint.manifest.step for checkpoint in published(folder)][:1]
    ended = Run(case, folder, *resumption(folder)).wait()
    told = f"{ended.codes}\n{ended.output}"
    if ended.hung or any(ended.codes):
        verdict.problems.append(f"the resumed run failed: {told}")
    if newest and f"resume: step {newest[0]} from" not in ended.output:
        verdict.problems.append(f"did not resume from step {newest[0]}: {told}")
    if "skipped" in ended.output or "could not" in ended.output:
        verdict.problems.append(f"a checkpoint was not taken: {told}")


def resumption(folder: Path) -> tuple[str, ...]:
    """How the run in `folder` is told to go on; before its first checkpoint it starts again."""
    if published(folder):
        return ("--resume", "run")
    return ("--set", "checkpoint_parameters.auto_resume=always")
