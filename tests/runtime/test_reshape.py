"""A run that goes on over other ranks or another mesh is still the run of one device.

Weights and moments are those of the file, to the bit; samples come once each; losses agree to
1e-5 with the uninterrupted run of a single process. What cannot be exact is told in one line.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import run_bounded

SCRIPT = Path(__file__).with_name("reshape_cases.py")
ROWS, STEPS = 40, 10

Case = dict[str, Any]
Record = dict[str, Any]

MESHES: dict[str, tuple[int, Case]] = {
    "single": (1, {}),
    "ddp": (2, {"dp_replicate": 2}),
    "fsdp": (2, {"dp_shard": 2}),
    "tp": (2, {"tensor_parallel": 2}),
    "pp": (2, {"pipeline_parallel": 2}),
    "interleaved": (2, {"pipeline_parallel": 2, "pipeline_schedule": "Interleaved1F1B"}),
    "ddp4": (4, {"dp_replicate": 4}),
    "fsdp4": (4, {"dp_shard": 4}),
    "hsdp": (4, {"dp_replicate": 2, "dp_shard": 2}),
    "fsdp+tp": (4, {"dp_shard": 2, "tensor_parallel": 2}),
    "fsdp+pp": (4, {"dp_shard": 2, "pipeline_parallel": 2}),
    "tp+pp": (4, {"tensor_parallel": 2, "pipeline_parallel": 2}),
    "fsdp+cp": (4, {"dp_shard": 2, "context_parallel": 2}),
}

CHAINS = [
    ("ddp", "fsdp4", "single", "pp"),
    ("fsdp", "hsdp", "single", "tp"),
    ("tp", "fsdp+tp", "single", "interleaved"),
    ("interleaved", "tp+pp", "single", "ddp"),
    ("pp", "fsdp+pp", "single", "fsdp"),
    ("fsdp", "ddp4", "single", "ddp"),
    ("ddp", "fsdp+cp", "single", "fsdp"),
]
STOPS = (2, 4, 7, STEPS)
"""Of epochs of five steps."""


def chain_cases() -> list[list[Case]]:
    """A launch's cases each: the first links of all chains, the second ones, …"""
    return [
        [
            {
                "name": "_".join(chain[: number + 1]),
                "after": "_".join(chain[:number]) or None,
                "stop": STOPS[number],
                "device": MESHES[chain[number]][1],
            }
            for chain in {chain[: number + 1]: chain for chain in CHAINS}.values()
        ]
        for number in range(4)
    ]


def case(name: str, mesh: str, after: str | None = None, stop: int = STEPS, **more: Any) -> Case:
    return {"name": name, "after": after, "stop": stop, "device": MESHES[mesh][1], **more}


# Two data ranks with a dropout, without and with an end in between; and loaders of all kinds.
FIRST = [
    case("whole", "fsdp", dropout=True),
    case("half", "fsdp", stop=3, dropout=True),
    case("whole again", "fsdp", "half", dropout=True),
    case("by rank", "fsdp", stop=2, loader="by rank"),
    case("by rank on other ranks", "ddp", "by rank", loader="by rank"),
    case("in common", "fsdp", stop=2, loader="in common"),
    case("torchdata", "fsdp", stop=2, loader="torchdata"),
]
SECOND = [
    case("by rank on tp", "fsdp+tp", "by rank", loader="by rank"),
    case("by rank on 4", "fsdp4", "by rank", loader="by rank"),
    case("in common on 4", "fsdp4", "in common", stop=3, loader="in common"),
    case("in common on 4 again", "fsdp4", "in common on 4", loader="in common"),
    case("torchdata on 4", "fsdp4", "torchdata", stop=3, loader="torchdata"),
    case("torchdata on 4 again", "fsdp4", "torchdata on 4", loader="torchdata"),
]
THIRD = [
    case("reference", "single"),
    case("other batch", "single", "half", batch=5),
    case("in common on 1", "single", "in common", stop=3, loader="in common", rows=4),
    case("in common on 1 again", "single", "in common on 1", stop=9, loader="in common", rows=4),
]
MORE = (FIRST, SECOND, THIRD, [])


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Record]:
    """What a case recorded; all of them run in four launches."""
    pytest.importorskip("torchdata")
    root = tmp_path_factory.mktemp("reshape")
    for number, cases in enumerate(chain_cases()):
        cases += MORE[number]
        written = root / f"cases{number}.json"
        written.write_text(json.dumps(cases))
        ranks = (2, 4, 1, 2)[number]
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        command = [sys.executable, *(torchrun if ranks > 1 else []), str(SCRIPT)]
        done = run_bounded([*command, str(written), str(root)], cwd=root, timeout=200)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return lambda name: json.loads((root / f"{name}.json").read_text())


def names(chain: tuple[str, ...]) -> list[str]:
    return ["_".join(chain[:number]) for number in range(1, len(chain) + 1)]


@pytest.mark.parametrize("chain", CHAINS, ids=" > ".join)
class TestChain:
    def test_weights_and_moments_are_those_of_the_file(
        self, chain: tuple[str, ...], record: Callable[[str], Record]
    ) -> None:
        assert [record(name)["wrong"] for name in names(chain)] == [[]] * 4

    def test_samples_come_once_each(
        self, chain: tuple[str, ...], record: Callable[[str], Record]
    ) -> None:
        steps = joined([record(name) for name in names(chain)])
        assert list(steps) == [str(step) for step in range(1, STEPS + 1)]
        assert_once_each(steps)
        reference = record("reference")["steps"]
        assert all(seen(steps[step]) == seen(reference[step]) for step in steps)

    def test_losses_are_those_of_one_device(
        self, chain: tuple[str, ...], record: Callable[[str], Record]
    ) -> None:
        steps = joined([record(name) for name in names(chain)])
        for step, expected in record("reference")["steps"].items():
            assert steps[step]["loss"] == pytest.approx(expected["loss"], abs=1e-5), step

    def test_one_line_says_what_is_not_exact(
        self, chain: tuple[str, ...], record: Callable[[str], Record]
    ) -> None:
        for name in names(chain)[1:]:
            first, *others = record(name)["lines"]
            assert "saved on" in first
            assert others == [
                "resume: dropout and other random draws are new ones: the mesh is another"
            ]


def joined(records: list[Record]) -> dict[str, Any]:
    return {step: value for record in records for step, value in record["steps"].items()}


def seen(step: dict[str, Any]) -> list[int]:
    return sorted(index for own in step["ids"] for index in own)


def assert_once_each(steps: dict[str, Any]) -> None:
    for epoch in (0, 5):
        read = [index for step in range(epoch + 1, epoch + 6) for index in seen(steps[str(step)])]
        assert sorted(read) == list(range(ROWS))


class TestTheSameMesh:
    def test_exact(self, record: Callable[[str], Record]) -> None:
        whole, parts = record("whole"), [record("half"), record("whole again")]
        assert joined(parts) == whole["steps"]
        assert parts[1]["wrong"] == []

    def test_each_rank_has_its_own_stream(self, record: Callable[[str], Record]) -> None:
        first, second = record("whole again")["streams"]
        assert first != second

    def test_nothing_to_say(self, record: Callable[[str], Record]) -> None:
        assert len(record("whole again")["lines"]) == 1

    def test_other_meshes_have_other_streams(self, record: Callable[[str], Record]) -> None:
        first, second = record("ddp_fsdp4_single_pp")["streams"]
        assert first != second
        streams = record("ddp_fsdp4")["streams"]
        assert len({tuple(stream) for stream in streams}) == 4


class TestLoaders:
    @pytest.mark.parametrize("other", ["by rank on tp", "by rank on other ranks"])
    def test_each_data_rank_gets_its_own_state(
        self, other: str, record: Callable[[str], Record]
    ) -> None:
        assert_once_each(joined([record("by rank"), record(other)]))

    def test_a_state_that_cannot_be_dealt_out_begins_anew(
        self, record: Callable[[str], Record]
    ) -> None:
        lines = record("by rank on 4")["lines"]
        assert [line for line in lines if "ByRank cannot go on with 4 data ranks" in line]

    @pytest.mark.parametrize("kind", ["in common", "torchdata"])
    def test_more_ranks(self, kind: str, record: Callable[[str], Record]) -> None:
        parts = [kind, f"{kind} on 4", f"{kind} on 4 again"]
        assert_once_each(joined([record(name) for name in parts]))

    def test_fewer_ranks(self, record: Callable[[str], Record]) -> None:
        """With as many rows per rank, an epoch has more batches."""
        parts = ["in common", "in common on 1", "in common on 1 again"]
        steps = joined([record(name) for name in parts])
        assert [len(seen(step)) for step in steps.values()] == [8, 8, *[4] * 7]
        read = [index for step in steps.values() for index in seen(step)]
        assert read == [*range(ROWS), *range(4)]

    def test_another_batch_size_reads_some_again(self, record: Callable[[str], Record]) -> None:
        lines = record("other batch")["lines"]
        assert "resume: 4 samples are read again: 24 do not fill batches of 1 x 5" in lines
        steps = record("half")["steps"] | record("other batch")["steps"]
        read = [index for step in steps.values() for index in seen(step)]
        assert set(read[: ROWS + 4]) == set(range(ROWS))
