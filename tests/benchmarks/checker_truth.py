"""Random projects at random sizes: does `dream check` say what a set-up then shows?

    python tests/benchmarks/checker_truth.py                    2,000 cases
    python tests/benchmarks/checker_truth.py --seed 1234        one case, told in full
    python tests/benchmarks/checker_truth.py --only DT208 DT209 those that either side says it of

The truth is the runtime's own set-up as one rank of many on a pretended process group, and
what each hook then left on the modules. Every disagreement is kept as a folder.
"""

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "runtime"), str(ROOT / "tests" / "check")]

from truth_configs import make_case  # noqa: E402
from truth_verdicts import Verdict, try_case  # noqa: E402


def verdict_of(seed: int) -> Verdict:
    """The case of that seed, tried in a folder of its own."""
    with tempfile.TemporaryDirectory() as name:
        return try_case(make_case(seed), Path(name).resolve())


def told(verdict: Verdict) -> str:
    """A verdict in a few lines."""
    case, truth = verdict.case, verdict.truth
    lines = [f"seed {case.seed}: world size {case.world_size}, per node {case.nproc}"]
    lines += [f"  drawn: {', '.join(case.breaks) or 'nothing wrong'}"]
    lines += [f"  runtime: {'/'.join(sorted(f.codes))}: {f.text[:160]}" for f in truth.faults]
    lines += [f"  runtime: {truth.unexplained[:300]}"] if truth.unexplained else []
    lines += [f"  checker: {name} {sorted(codes)}" for name, codes in verdict.found.items()]
    return "\n".join(lines + [f"  DISAGREE {fault[:200]}" for fault in verdict.faults])


def keep(verdict: Verdict, folder: Path) -> None:
    """Write a case down, to be looked at."""
    place = folder / str(verdict.case.seed)
    place.mkdir(parents=True, exist_ok=True)
    for name, text in verdict.case.files.items():
        (place / name).write_text(text)
    (place / "verdict.txt").write_text(told(verdict) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2_000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir(), "checker-truth"))
    options = parser.parse_args()
    if options.seed is not None:
        verdict = verdict_of(options.seed)
        keep(verdict, options.out)
        print(told(verdict), f"\n  kept in {options.out / str(options.seed)}")
        return int(bool(verdict.faults))
    began, counts, codes, wrong = time.perf_counter(), Counter(), Counter(), []
    seeds = range(options.start, options.start + options.cases)
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        for number, verdict in enumerate(pool.imap_unordered(verdict_of, seeds, 8), 1):
            said = {code for fault in verdict.truth.faults for code in fault.codes}
            if options.only and not said.union(verdict.found.get("error", ())) & {*options.only}:
                continue
            counts[verdict.outcome] += 1
            counts["undecidable"] += bool(verdict.unknown)
            counts["latent"] += verdict.latent
            codes.update(verdict.found.get("error", ()))
            if verdict.faults:
                wrong.append(verdict)
                keep(verdict, options.out)
                print(told(verdict), flush=True)
            if number % 100 == 0:
                print(f"{number} cases, {len(wrong)} disagreements", flush=True)
    undecidable, latent = counts.pop("undecidable"), counts.pop("latent")
    figures = {
        "cases": sum(counts.values()),
        "outcomes": dict(counts.most_common()),
        "undecidable": undecidable,
        "not called here": latent,
        "agreements": sum(counts.values()) - len(wrong),
        "disagreements": sorted(verdict.case.seed for verdict in wrong),
        "errors by code": dict(sorted(codes.items())),
        "seconds": round(time.perf_counter() - began, 1),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "figures.json").write_text(json.dumps(figures, indent=2) + "\n")
    for name, value in figures.items():
        print(f"{name:15} {value}")
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
