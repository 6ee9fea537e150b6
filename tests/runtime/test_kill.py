"""No step is ever lost: a few of the moments of `tests/benchmarks/kill_resume.py`.

Killed at each moment of a save, a run that is resumed logs what an undisturbed one does, bit
for bit, and has lost no more than the steps of one cadence, of two where saves run behind.
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch.distributed.checkpoint.planner import SavePlan

from dream_trainer.checkpoint.manifest import Manifest
from dream_trainer.checkpoint.store import Store
from dream_trainer.checkpoint.writer import publishing_writer
from tests.runtime.forked import fork_server
from tests.runtime.killed_run import Case
from tests.runtime.killing import Bench, Moment
from tests.runtime.traps import OF_A_RESUME, POINTS, Trap

ALONE = Case(loader="samples", window=2)
BEHIND = Case(loader="stream", behind=True)
PAIR = Case(mesh="fsdp", loader="text", val_every=None)
PAIR_BEHIND = Case(mesh="fsdp", loader="text", val_every=None, behind=True)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with fork_server():
        yield Bench(tmp_path_factory.mktemp("kill"))


def at(case: Case, point: str, count: int = 2, rank: int = 0, spares: bool = False) -> Moment:
    return Moment(case=case, trap=Trap(point=point, count=count, rank=rank), spares=spares)


MOMENTS = [
    at(ALONE, "data"),
    at(BEHIND, "data"),
    at(PAIR, "data", rank=1, spares=True),
    at(PAIR_BEHIND, "data", rank=1),
    at(PAIR_BEHIND, "metadata"),
    at(BEHIND, "manifest"),
    at(ALONE, "half-manifest", count=1),
    at(PAIR, "rename"),
    at(BEHIND, "renamed"),
    at(ALONE, "prune", count=1),
    at(PAIR_BEHIND, "pruning"),
    at(ALONE, "clean", count=1),
    at(PAIR, "load", count=1, rank=1, spares=True),
    Moment(case=BEHIND, at=0.7, times=2),
    Moment(case=PAIR_BEHIND, at=0.8, rank=1, spares=True),
    Moment(case=ALONE, at=0.9, number=signal.SIGTERM),
]


def test_every_point_is_among_the_moments() -> None:
    assert {moment.kind for moment in MOMENTS} >= {*POINTS, *OF_A_RESUME}


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda m: f"{m.kind}-{m.case.mesh}")
def test_no_step_is_lost(bench: Bench, moment: Moment) -> None:
    verdict = bench.judge(moment)
    assert not verdict.problems, "\n".join(verdict.problems)
    assert len(verdict.lost) == moment.times


def test_only_the_first_rank_makes_the_folder(tmp_path: Path) -> None:
    """It clears what an earlier attempt left there: another rank's folder might go with that."""
    manifest = Manifest(step=1, epoch=0, experiment="run", created=0.0, world_size=2, axes={})
    store = Store(str(tmp_path))
    for is_first in (False, True):
        writer = publishing_writer(store, manifest, read_back=False)
        writer.set_up_storage_writer(is_first)
        writer.prepare_local_plan(SavePlan([]))
        assert store.folders() == ["step-00000001.unfinished"] * is_first
