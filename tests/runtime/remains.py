"""What a run left in its folder: its log and its checkpoints."""

import json
from pathlib import Path
from typing import Any

from dream_trainer.checkpoint.manifest import Checkpoint, checkpoints, folder_of, unfinished
from dream_trainer.checkpoint.store import Store
from tests.runtime.killed_run import KEPT

Log = dict[tuple[int, str], dict[str, Any]]


def store_of(folder: Path, name: str = "run") -> Store:
    return Store(folder_of(str(folder / "runs"), name))


def published(folder: Path, name: str = "run") -> list[Checkpoint]:
    """The finished checkpoints, the newest first."""
    return checkpoints(store_of(folder, name))


def logged_steps(folder: Path) -> int:
    return max((step for step, _ in read_log(folder)[0]), default=0)


def read_log(folder: Path, name: str = "run") -> tuple[Log, list[str]]:
    """(step, "train" or "val") -> values without times; and what contradicts itself."""
    log: Log = {}
    problems = []
    path = folder / "runs" / name / "log.jsonl"
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            record = json.loads(line)
        except ValueError:
            problems.append(f"torn line: {line[:80]}")
            continue
        if "event" in record:
            continue
        values = {k: v for k, v in record.items() if k != "time" and not k.startswith("perf/")}
        key = (record["step"], "val" if "val/loss" in record else "train")
        if log.setdefault(key, values) != values:
            problems.append(f"{key}: {values} after {log[key]}")
    return log, problems


def differences(folder: Path, reference: Log, name: str = "run") -> list[str]:
    """Where the log of a run says anything else than `reference`, bit for bit."""
    log, problems = read_log(folder, name)
    for key in sorted(log.keys() | reference.keys()):
        if log.get(key) != reference.get(key):
            problems.append(f"{key}: {log.get(key)} instead of {reference.get(key)}")
    return problems


def left_over(folder: Path, name: str = "run") -> list[str]:
    """What must not lie beside the checkpoints once a run is over."""
    store = store_of(folder, name)
    found = published(folder, name)
    problems = [f"{item} is left over" for item in unfinished(store)]
    names = {checkpoint.name for checkpoint in found}
    problems += [f"{item} is left over" for item in store.folders() if item not in names]
    problems += [problem for checkpoint in found for problem in checkpoint.problems()]
    if not 0 < len(found) <= KEPT + 1:
        problems.append(f"{len(found)} checkpoints are kept")
    return sorted(set(problems))
