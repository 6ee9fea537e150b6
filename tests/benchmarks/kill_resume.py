"""No step is ever lost: kill small runs at random moments, resume them, compare every value.

    python tests/benchmarks/kill_resume.py [--moments 50] [--restarts 3] [--seed N] [--only I]

Half of the moments are drawn evenly from the life of a run, the other half are moments of a
save, of a prune or of a resume. Each run is resumed to its end, and its log must equal, bit
for bit, that of one run of the same mesh that was neither saved nor killed. Then torchrun
itself restarts jobs of which ranks are killed. Ends with exit code 1 where anything failed;
`--seed` and `--only` repeat one moment.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[2] / "runtime"))

from tests.runtime.forked import fork_server
from tests.runtime.killed_run import Case
from tests.runtime.killing import Bench, Moment, Verdict
from tests.runtime.launching import restarted
from tests.runtime.traps import OF_A_RESUME, POINTS, Trap

MESHES = ("single", "fsdp", "single", "ddp", "fsdp", "hsdp")
OF_ANY_RANK = ("data", "load")
"""Moments that every rank goes through; the others are rank 0's."""


def draw(moments: int, seed: int) -> Iterator[Moment]:
    """Meshes and ways to save alternate; the rest is chance."""
    chance = random.Random(seed)
    for index in range(moments):
        case = Case(
            mesh=MESHES[index // 2 % len(MESHES)],
            behind=index % 2 == 1,
            loader=chance.choice(("samples", "text", "stream")),
            window=chance.choice((1, 1, 2, 3)),
            val_every=chance.choice((4, 4, None)),
            every=chance.choice((2, 3, 5)),
        )
        rank, times = chance.randrange(case.ranks), chance.choice((1, 1, 2, 3))
        spares = case.ranks > 1 and chance.random() < 0.5
        if chance.random() < 0.5:
            number = chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM))
            at = chance.uniform(0.05, 1.3)
            yield Moment(case=case, at=at, number=number, spares=spares, rank=rank, times=times)
            continue
        point = chance.choice((*POINTS, *OF_A_RESUME))
        trap = Trap(
            point=point,
            rank=rank if point in OF_ANY_RANK else 0,
            count=1 if point in OF_A_RESUME else chance.choice((1, 1, 2, 3)),
        )
        yield Moment(case=case, trap=trap, spares=spares)


def tell(index: int, verdict: Verdict) -> None:
    moment = verdict.moment
    who = "one" if moment.spares else "all"
    if moment.trap:
        where = f"{moment.kind} {moment.trap.count} of {who}"
    else:
        where = f"{moment.kind} of {who} at {moment.at:.2f}, {moment.times}x"
    state = "ok" if not verdict.problems else "FAILED"
    lost = ",".join(map(str, verdict.lost))
    print(
        f"{index:>4}  {moment.case!s:<38}every {moment.case.every}  {where:<30}"
        f"{verdict.hits} hit  lost {lost:<8}{verdict.seconds:>6.1f} s  {state}",
        flush=True,
    )
    for problem in verdict.problems:
        print("      " + problem.replace("\n", "\n      "), flush=True)


def total(verdicts: list[Verdict], seconds: float) -> None:
    """Sums by kind."""
    kinds: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        kinds.setdefault(verdict.moment.kind, []).append(verdict)
    print(f"\n{'kind':<16}{'moments':>8}{'kills':>8}{'most lost':>11}{'failed':>8}")
    for kind, own in [*sorted(kinds.items()), ("all", verdicts)]:
        kills = sum(verdict.hits for verdict in own)
        lost = max((step for verdict in own for step in verdict.lost), default=0)
        failed = sum(bool(verdict.problems) for verdict in own)
        print(f"{kind:<16}{len(own):>8}{kills:>8}{lost:>11}{failed:>8}")
    over = [
        lost - verdict.moment.case.every
        for verdict in verdicts
        for lost in verdict.lost
        if lost > verdict.moment.case.every
    ]
    print(f"beyond one cadence, where saves run behind training: {len(over)} times")
    print(f"{seconds:.0f} s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=50)
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", type=int, default=None)
    options = parser.parse_args()
    seed = random.randrange(2**32) if options.seed is None else options.seed
    print(f"--moments {options.moments} --seed {seed}", flush=True)
    began = time.monotonic()
    verdicts, problems = [], []
    with tempfile.TemporaryDirectory() as name, fork_server():
        bench = Bench(Path(name))
        for index, moment in enumerate(draw(options.moments, seed)):
            if options.only in (None, index):
                verdicts.append(bench.judge(moment))
                tell(index, verdicts[-1])
        for index in range(options.restarts if options.only is None else 0):
            found = restarted(bench, Case(mesh="fsdp", behind=index % 2 == 1, name=None), kills=2)
            print(f"torchrun restarts, {index}: {'FAILED' if found else 'ok'}", *found, flush=True)
            problems += found
    total(verdicts, time.monotonic() - began)
    return 1 if problems or any(verdict.problems for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
