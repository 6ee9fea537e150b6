"""`dream check` over source that was never meant for it: no false alarm, no crash, no end missed.

    python tests/benchmarks/no_false_alarm.py                      everything installed
    python tests/benchmarks/no_false_alarm.py --sample 500         a seeded part of it
    python tests/benchmarks/no_false_alarm.py --folders DIR ...    projects that train something
    python tests/benchmarks/no_false_alarm.py --fuzz 10000         damaged generated projects

Every file of the standard library and of site-packages is checked three times, alone in a
folder: as it is; with a trainer added at its end, so that all of the evaluator and every
rule are run; and with its classes turned into trainers and their methods into hooks. One
in a hundred is checked where it lies, too, with everything that it imports. `--folders`
checks projects whole, then a few files that train something, in disguise, in their place.
"""

import argparse
import json
import multiprocessing
import os
import random
import resource
import shutil
import sys
import sysconfig
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "check")]

from watched import watched  # noqa: E402
from wild_checks import Outcome, examine, python_files_of, write  # noqa: E402
from wild_source import as_trainers, damaged, with_probe  # noqa: E402

MEMORY = 8 << 30
"""Bytes that one worker may ask for: a check that wants more is told of as a crash."""

DISGUISED = 4
"""Files of a project that are made trainers; each is checked with all that it imports."""

GOLDEN = ROOT / "tests" / "templates" / "golden"


def own_words(path: str) -> str | None:
    """The text of a file that Python can read, None of any other."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        compile(text, path, "exec", flags=0x400, dont_inherit=True)
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return text


def every_way(path: str) -> list[Outcome]:
    """The file alone: as it is, with a trainer at its end, and all its classes trainers."""
    found = []
    if zlib.crc32(path.encode()) % 100 == 0:
        found.append(examine(path, f"in place: {path}"))
    with tempfile.TemporaryDirectory() as name:
        alone = Path(name, "train.py")
        with suppress(OSError):
            alone.write_bytes(Path(path).read_bytes())
            found.append(examine(str(alone), f"as it is: {path}"))
        text = own_words(path)
        for kind, disguise in (("probe", with_probe), ("trainers", as_trainers)):
            if text is not None:
                write(Path(name), {"train.py": disguise(text)})
                found.append(examine(str(alone), f"{kind}: {path}"))
    return found


def project(folder: str) -> list[Outcome]:
    """A folder as it is, then with files that train something in disguise."""
    found = [examine(folder, f"project: {folder}")]
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name, "copy")
        shutil.copytree(folder, copy, ignore_dangling_symlinks=True)
        training = [
            (path, text)
            for path in python_files_of([str(copy)])
            if (text := own_words(path)) is not None
            and (".backward(" in text or "training_step" in text)
        ]
        random.Random(folder).shuffle(training)
        for path, text in training[:DISGUISED]:
            Path(path).write_text(as_trainers(text), encoding="utf-8", newline="")
            shown = os.path.relpath(path, copy)
            found.append(examine(path, f"disguised: {Path(folder).name}/{shown}"))
        found.append(examine(str(copy), f"disguised project: {folder}"))
    return found


def fuzzed(seed: int) -> list[Outcome]:
    """One golden project with a file or two of it damaged."""
    chance = random.Random(seed)
    folder = chance.choice(sorted(GOLDEN.iterdir()))
    files: dict[str, str | bytes] = {path.name: path.read_text() for path in folder.glob("*.py")}
    damage(files, chance)
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), files)
        found = examine(name, f"damaged {folder.name}, seed {seed}")
    return [found]


def damage(files: dict[str, str | bytes], chance: random.Random) -> None:
    for name in chance.sample(["train.py", "config.py"], chance.choice((1, 1, 2))):
        text = str(files[name])
        try:
            files[name] = damaged(text, chance)
        except (SyntaxError, ValueError, RecursionError):
            files[name] = text.replace(chance.choice("()[]:=\n"), "", 1)


def guarded(work: "partial[list[Outcome]]", item: str | int) -> list[Outcome]:
    """Run `work` and note what it did to the world around it."""
    under = os.path.join(str(item), "") if isinstance(item, str) else str(GOLDEN)
    # Its own temporary files are written, so only what is run or imported tells.
    with watched(under) as deeds:
        found = work(item)
    bad = [deed for deed in deeds if deed.startswith(("ran", "imported", "sub", "socket"))]
    return found + [Outcome(str(item), "crash", 0.0, note=deed) for deed in bad]


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def run(work: "partial[list[Outcome]]", items: list[str] | list[int], jobs: int) -> list[Outcome]:
    outcomes: list[Outcome] = []
    with multiprocessing.Pool(jobs, limit_memory) as pool:
        for number, found in enumerate(pool.imap_unordered(work, items, chunksize=1), 1):
            outcomes += found
            for outcome in found:
                if not outcome.survived:
                    print(f"{outcome.status}: {outcome.path}\n    {outcome.note}", flush=True)
            if number % 1000 == 0:
                print(f"... {number} of {len(items)}", flush=True)
    return outcomes


def installed() -> list[str]:
    """The standard library, its tests included, and site-packages; each file once."""
    paths = sysconfig.get_paths()
    roots = list(dict.fromkeys([paths["stdlib"], paths["platlib"], paths["purelib"]]))
    return list(dict.fromkeys(python_files_of(roots)))


def false_alarms(outcomes: list[Outcome]) -> Iterator[str]:
    """Errors in files as they are, but for those that Python itself cannot read."""
    for outcome in outcomes:
        if outcome.path.startswith(("as it is: ", "in place: ", "project: ")):
            for code, line, message in outcome.errors:
                path = outcome.path.partition(": ")[2]
                if code != "DT000" or own_words(path) is not None:
                    yield f"{path}:{line} {code} {message}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folders", nargs="*", default=[])
    parser.add_argument("--fuzz", type=int)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.fuzz:
        first = options.seed * 1_000_000
        seeds = list(range(first, first + options.fuzz))
        outcomes = run(partial(guarded, fuzzed), seeds, options.jobs)
    elif options.folders:
        outcomes = run(partial(guarded, project), options.folders, options.jobs)
    else:
        files = installed()
        if options.sample:
            files = random.Random(options.seed).sample(files, options.sample)
        outcomes = run(partial(guarded, every_way), files, options.jobs)
    report(outcomes, options.json)


def report(outcomes: list[Outcome], file: Path | None) -> None:
    """Print the figures, write them down, and exit with 1 where there is something to mend."""
    alarms = list(false_alarms(outcomes))
    for alarm in alarms:
        print(f"false alarm: {alarm}")
    kinds = Counter((outcome.path.partition(":")[0], outcome.status) for outcome in outcomes)
    if any(kind.startswith("damaged") for kind, _ in kinds):
        kinds = Counter(("damaged", outcome.status) for outcome in outcomes)
    for (kind, status), count in sorted(kinds.items()):
        print(f"{kind:<20}{status:<20}{count:>8}")
    codes = Counter(code for outcome in outcomes for code, _, _ in outcome.errors)
    print("errors by rule:", ", ".join(f"{code} {count}" for code, count in sorted(codes.items())))
    slowest = sorted(outcomes, key=lambda outcome: -outcome.seconds)[:10]
    for outcome in slowest:
        print(f"{outcome.seconds:>8.2f} s  {outcome.path}")
    fallen = [outcome for outcome in outcomes if not outcome.survived]
    print(f"{len(outcomes)} checks, {len(fallen)} fell, {len(alarms)} false alarms")
    if file:
        figures = {
            "checks": len(outcomes),
            "fallen": [asdict(outcome) for outcome in fallen],
            "false_alarms": alarms,
            "errors_by_rule": codes,
            "slowest": [asdict(outcome) for outcome in slowest],
        }
        file.write_text(json.dumps(figures, indent=2))
    sys.exit(bool(fallen or alarms))


if __name__ == "__main__":
    main()
