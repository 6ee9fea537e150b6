"""Batches: moved, counted, unpadded; and real ranks whose loaders are uneven."""

import json
from collections import UserDict, defaultdict, namedtuple
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler

from dream_trainer.data import count_rows, move, set_epoch, unpadded
from tests.conftest import run_torchrun

CPU, META = torch.device("cpu"), torch.device("meta")
Pair = namedtuple("Pair", "x y")


class Encoding(UserDict[str, Any]):
    """What a tokenizer returns."""

    def __init__(self, data: dict[str, Any], language: str) -> None:
        super().__init__(data)
        self.language = language


@dataclass(frozen=True)
class Item:
    image: torch.Tensor
    name: str = field(init=False)

    def __init__(self, image: torch.Tensor, name: str) -> None:
        object.__setattr__(self, "image", image)
        object.__setattr__(self, "name", name)


class TestMove:
    @pytest.mark.parametrize("value", [3, "text", None, 1.5, [], {}, (), ["a", 2], {"k": "v"}])
    def test_what_holds_no_tensor_is_kept(self, value: Any) -> None:
        assert move(value, META) == value

    def test_nested(self) -> None:
        one = torch.ones(2)
        batch = {"a": one, "b": [one, (one, "s")], "c": Pair(one, {"d": one}), "n": None}
        moved = move(batch, META)
        tensors = [moved["a"], moved["b"][0], moved["b"][1][0], moved["c"].x, moved["c"].y["d"]]
        assert all(tensor.device == META for tensor in tensors)
        assert isinstance(moved["c"], Pair) and isinstance(moved["b"][1], tuple)
        assert moved["b"][1][1] == "s" and moved["n"] is None
        assert batch["a"].device == CPU

    def test_mappings_and_dataclasses_keep_their_kind(self) -> None:
        one = torch.ones(3)
        encoding = Encoding({"ids": one, "nested": [one]}, language="en")
        moved = move(encoding, META)
        assert type(moved) is Encoding and moved.language == "en"
        assert moved["ids"].device == moved["nested"][0].device == META
        assert encoding["ids"].device == CPU
        item = Item(one, "name")
        moved = move(item, META)
        assert type(moved) is Item and moved.image.device == META and moved.name == "name"
        assert item.image.device == CPU
        assert move(Item, META) is Item

    def test_already_there(self) -> None:
        one = torch.ones(2)
        assert move(one, CPU) is one


class TestCountRows:
    @pytest.mark.parametrize(
        "batch", [None, 3, "text", b"bytes", {}, [], (), ["a"], {"a": 1}, 2.5]
    )
    def test_no_tensor(self, batch: Any) -> None:
        assert count_rows(batch) == 1

    @pytest.mark.parametrize(
        ("batch", "rows"),
        [
            (torch.zeros(5, 2), 5),
            (Encoding({"text": "a", "ids": torch.zeros(4)}, "en"), 4),
            (Item(torch.zeros(6), "name"), 6),
            (torch.zeros(()), 1),
            (torch.zeros(0, 3), 0),
            ({"x": torch.zeros(4), "y": torch.zeros(9)}, 4),
            ((torch.zeros(3, 1), torch.zeros(3)), 3),
            ([{"x": torch.zeros(6)}], 6),
            (Pair(torch.zeros(7), None), 7),
            ({"name": "run", "x": torch.zeros(4)}, 4),
            ({"names": ["a", "b"], "x": torch.zeros(2, 3)}, 2),
            ({"meta": {"path": "p"}, "x": torch.zeros(5)}, 5),
            ((["caption", "caption", "caption"], torch.zeros(3, 8)), 3),
            ({"none": [], "x": torch.zeros(5)}, 5),
        ],
    )
    def test_first_tensor(self, batch: Any, rows: int) -> None:
        assert count_rows(batch) == rows


def given(loader: Any) -> list[int]:
    return [int(sample) for batch in loader for sample in batch]


class TestUnpad:
    @pytest.mark.parametrize("loader", [None, [1, 2], iter(()), {"a": 1}])
    def test_other_loaders_are_left_alone(self, loader: Any) -> None:
        with unpadded(loader):
            set_epoch(loader, 1)

    @pytest.mark.parametrize("shuffle", [False, True])
    @pytest.mark.parametrize("ranks", [1, 2, 3, 4])
    @pytest.mark.parametrize("samples", [1, 3, 4, 7, 8])
    def test_every_sample_exactly_once(self, samples: int, ranks: int, shuffle: bool) -> None:
        data = torch.arange(samples)
        seen = []
        for rank in range(ranks):
            sampler = DistributedSampler(data, ranks, rank, shuffle=shuffle)  # type: ignore[arg-type]
            loader = DataLoader(data, 2, sampler=sampler)  # type: ignore[arg-type, var-annotated]
            padded = len(sampler)
            with unpadded(loader):
                set_epoch(loader, 3)
                assert len(given(loader)) == len(sampler)
                seen += given(loader)
            assert len(sampler) == padded
        assert sorted(seen) == list(range(samples))

    def test_through_a_batch_sampler(self) -> None:
        data = torch.arange(7)
        seen = []
        for rank in range(2):
            sampler = DistributedSampler(data, 2, rank, shuffle=False)  # type: ignore[arg-type]
            loader = DataLoader(data, batch_sampler=BatchSampler(sampler, 2, False))  # type: ignore[arg-type, var-annotated]
            with unpadded(loader):
                seen += given(loader)
        assert sorted(seen) == list(range(7))

    def test_dropping_is_the_users_choice(self) -> None:
        data = torch.arange(7)
        sampler = DistributedSampler(data, 2, 0, shuffle=False, drop_last=True)  # type: ignore[arg-type]
        loader = DataLoader(data, sampler=sampler)  # type: ignore[arg-type, var-annotated]
        with unpadded(loader):
            assert given(loader) == [0, 2, 4]


Outcomes = dict[str, dict[int, Any]]


@pytest.fixture(scope="module", params=[2, 3])
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(number of ranks, case -> rank -> outcome, the finished process) of uneven.py."""
    script = Path(__file__).with_name("uneven.py")
    done = run_torchrun(request.param, script, cwd=tmp_path_factory.mktemp("uneven"), timeout=100)
    outcomes: Outcomes = defaultdict(dict)
    for line in done.stdout.splitlines():
        if line.startswith("["):
            rank, case, outcome = json.loads(line)
            outcomes[case][rank] = outcome
    return request.param, outcomes, done


def on_all(ranks: int, outcome: Any) -> dict[int, Any]:
    return dict.fromkeys(range(ranks), outcome)


def ran_out(steps: int, rank: int) -> list[Any]:
    more = f"; dp rank {rank} ran out while others had more"
    return [steps, f"with the data, after {steps} batches{more}"]


class TestOnRealRanks:
    @pytest.mark.parametrize(
        ("case", "expected"),
        [
            ("sized ddp", ran_out(3, 0)),
            ("sized fsdp", ran_out(3, 0)),
            ("unsized ddp", ran_out(3, 0)),
            ("unsized fsdp", ran_out(3, 0)),
            ("even", [3, "with the data, after 3 batches"]),
            ("even unsized", [3, "with the data, after 3 batches"]),
            ("limited", [2, "after 2 batches, as configured"]),
            ("limited unsized", [2, "after 2 batches, as configured"]),
            ("limit is the end", [2, "after 2 batches, as configured"]),
            ("window cut short", [2, ran_out(3, 0)[1]]),
            ("two epochs", [4, ran_out(2, 0)[1]]),
            (
                "nothing on one",
                f"The training loader gave no batch: it ended {ran_out(0, 0)[1]}.",
            ),
        ],
    )
    def test_training_ends_together(self, case: str, expected: Any, real: Any) -> None:
        ranks, outcomes, done = real
        assert outcomes[case] == on_all(ranks, expected), done.stderr

    def test_who_ran_out(self, real: Any) -> None:
        ranks, outcomes, _ = real
        assert outcomes["last rank first"] == on_all(ranks, ran_out(3, ranks - 1))
        steps, why = ran_out(3, 1)
        if ranks == 3:
            why = why.replace("rank 1", "ranks 1, 2")
        assert outcomes["one knows its length"] == on_all(ranks, [steps, why])

    @pytest.mark.parametrize(
        "case",
        [
            "uneven batches",
            "uneven stream",
            "uneven ddp",
            "padded by 1",
            "padded by 2",
            "padded by 8",
            "one loader for both",
        ],
    )
    def test_validation_is_the_mean_over_all_samples(self, case: str, real: Any) -> None:
        ranks, outcomes, done = real
        assert len(outcomes[case]) == ranks, done.stderr
        for found, expected in outcomes[case].values():
            assert found == pytest.approx(expected, rel=1e-6)

    @pytest.mark.parametrize("window", [1, 2])
    @pytest.mark.parametrize("preset", ["ddp", "fsdp"])
    def test_num_items_over_ranks(self, preset: str, window: int, real: Any) -> None:
        ranks, outcomes, _ = real
        name = f"items {preset} window {window}"
        assert outcomes[name] == on_all(ranks, True)
        for held, own in outcomes[f"own {name}"].values():
            assert held == own, "the user's tensor became the number of all ranks"

    def test_a_rank_without_a_validation_batch(self, real: Any) -> None:
        _, outcomes, done = real
        assert "no validation batch" not in outcomes
        assert done.returncode == 1
        told = [line for line in done.stderr.splitlines() if "validation batch" in line]
        assert told == [
            "error: rank 0: dp rank 0 has no validation batch, others have. "
            "Use a smaller batch, or validate on more data."
        ]
        assert done.stderr.count("error: ") == 1


class TestMetricsOnRealRanks:
    def test_mean(self, real: Any) -> None:
        ranks, outcomes, done = real
        pairs = [(10 * rank + i, 1 + i) for rank in range(ranks) for i in range(rank + 1)]
        mean = sum(value * weight for value, weight in pairs) / sum(w for _, w in pairs)
        expected = {"a": pytest.approx(mean, rel=1e-12), "b": (ranks - 1) / 2}
        assert outcomes["mean"] == on_all(ranks, expected), done.stderr
        assert outcomes["nothing"] == on_all(ranks, {})
        assert outcomes["equal names"] == on_all(ranks, {"a": 1.0, "b": 2.0})

    @pytest.mark.parametrize(
        ("case", "first", "others"),
        [("one lacks one", "b", ""), ("each lacks one", "c", "b"), ("one logs nothing", "a", "")],
    )
    def test_names_differ(self, case: str, first: str, others: str, real: Any) -> None:
        ranks, outcomes, _ = real
        lacking = [f"dp rank 0 lacks {first}"]
        lacking += [f"dp rank {rank} lacks {others}" for rank in range(1, ranks) if others]
        text = (
            f"Ranks log different values: {'; '.join(lacking)}. "
            "Return the same names on every rank."
        )
        assert outcomes[case] == on_all(ranks, text)
