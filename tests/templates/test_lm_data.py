"""The lm recipe's data: every sample once, the same stream on any number of ranks."""

import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

QUICK = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def text(windows: int, seq_len: int) -> torch.Tensor:
    """Text of so many windows, with a few bytes over; no two windows begin alike."""
    return torch.arange(windows * seq_len + 1 + seq_len // 2) % 256


def loaders(
    lm: SimpleNamespace, source: torch.Tensor, *, batch: int, ranks: int, **options: Any
) -> list[Any]:
    config = replace(lm.config.single_config(), batch_size=batch, seq_len=4)
    options = {"shuffle": True, "drop_last": True} | options
    return [
        lm.data.TextBatches(source, config, rank=rank, ranks=ranks, **options)
        for rank in range(ranks)
    ]


def rows(batches: list[dict[str, torch.Tensor]]) -> list[list[int]]:
    return [row.tolist() for batch in batches for row in batch["input"]]


def global_batches(all_ranks: list[Any]) -> list[list[list[int]]]:
    """Step by step, what all ranks read together, in the order of their ranks."""
    return [rows(list(step)) for step in zip(*all_ranks, strict=True)]


def test_targets_are_the_inputs_one_byte_on(lm: SimpleNamespace) -> None:
    [loader] = loaders(lm, text(20, 4), batch=3, ranks=1)
    for batch in loader:
        assert batch["input"].shape == batch["target"].shape == (3, 4)
        assert batch["input"].dtype == batch["target"].dtype == torch.int64
        assert torch.equal(batch["input"][:, 1:], batch["target"][:, :-1])
        assert torch.equal((batch["input"] + 1) % 256, batch["target"])


@QUICK
@given(windows=st.integers(6, 60), batch=st.integers(1, 5), ranks=st.integers(1, 6))
def test_validation_reads_every_window_once(
    lm: SimpleNamespace, windows: int, batch: int, ranks: int
) -> None:
    source = text(windows, 4)
    every = loaders(lm, source, batch=batch, ranks=ranks, shuffle=False, drop_last=False)
    read = [list(loader) for loader in every]
    assert [len(batches) for batches in read] == [len(loader) for loader in every]
    assert all(len(part["input"]) > 0 for batches in read for part in batches)
    seen = [row for batches in read for row in rows(batches)]
    assert sorted(seen) == sorted(source[: windows * 4].view(-1, 4).tolist())


@QUICK
@given(
    windows=st.integers(24, 90), ranks=st.sampled_from([1, 2, 3, 4, 6]), epoch=st.integers(0, 3)
)
def test_the_global_order_does_not_depend_on_the_ranks(
    lm: SimpleNamespace, windows: int, ranks: int, epoch: int
) -> None:
    source = text(windows, 4)
    alone = loaders(lm, source, batch=12, ranks=1)
    shared = loaders(lm, source, batch=12 // ranks, ranks=ranks)
    for loader in alone + shared:
        loader.set_epoch(epoch)
    assert global_batches(shared) == global_batches(alone)


@QUICK
@given(
    done=st.integers(0, 6),
    before=st.sampled_from([1, 2, 3, 4]),
    after=st.sampled_from([1, 2, 3, 4]),
    epoch=st.integers(0, 2),
)
def test_a_resumed_epoch_goes_on_with_any_number_of_ranks(
    lm: SimpleNamespace, done: int, before: int, after: int, epoch: int
) -> None:
    source = text(80, 4)
    whole = loaders(lm, source, batch=12, ranks=1)
    first = loaders(lm, source, batch=12 // before, ranks=before)
    for loader in whole + first:
        loader.set_epoch(epoch)
    expected = global_batches(whole)
    iterators = [iter(loader) for loader in first]
    for _ in range(done):
        for iterator in iterators:
            next(iterator)
    state = first[0].state_dict()
    assert all(loader.state_dict() == state for loader in first)

    second = loaders(lm, source, batch=12 // after, ranks=after)
    for loader in second:
        loader.load_state_dict(state)
        loader.set_epoch(epoch)
    assert len(second[0]) == len(expected) - done
    assert global_batches(second) == expected[done:]
    for loader in second + whole:
        loader.set_epoch(epoch + 1)
    assert global_batches(second) == global_batches(whole)


@QUICK
@given(windows=st.integers(30, 60), batch=st.integers(1, 5), ranks=st.integers(1, 6))
def test_without_the_last_every_batch_is_full(
    lm: SimpleNamespace, windows: int, batch: int, ranks: int
) -> None:
    source = text(windows, 4)
    every = loaders(lm, source, batch=batch, ranks=ranks, shuffle=False)
    read = [list(loader) for loader in every]
    assert {len(batches) for batches in read} == {windows // (batch * ranks)}
    assert all(len(part["input"]) == batch for batches in read for part in batches)
    in_order = source[: windows * 4].view(-1, 4).tolist()
    seen = [row for step in global_batches(every) for row in step]
    assert seen == in_order[: len(seen)]


def test_epochs_and_seeds_differ_in_order(lm: SimpleNamespace) -> None:
    [loader] = loaders(lm, text(60, 4), batch=4, ranks=1)
    orders = []
    for seed in (0, 1, 2):
        for epoch in (0, 1, 2):
            loader.seed = seed
            loader.set_epoch(epoch)
            orders.append(tuple(loader.order().tolist()))
    assert len(set(orders)) == len(orders)


def test_an_epoch_left_early_starts_again(lm: SimpleNamespace) -> None:
    [loader] = loaders(lm, text(60, 4), batch=4, ranks=1, shuffle=False)
    first = next(iter(loader))
    again = next(iter(loader))
    assert torch.equal(first["input"], again["input"])


def test_too_little_text_is_refused(lm: SimpleNamespace) -> None:
    with pytest.raises(ValueError) as caught:
        loaders(lm, text(7, 4), batch=4, ranks=2)
    assert str(caught.value) == (
        "31 bytes of text make 7 samples of seq_len=4, but dp_size=2 needs at least 8. "
        "Name more text_files, or lower batch_size or seq_len."
    )
    with pytest.raises(ValueError, match=r"^4 bytes of text make 0 samples of seq_len=4, "):
        loaders(lm, torch.arange(4), batch=1, ranks=1, shuffle=False, drop_last=False)


def test_files_are_read_one_after_the_other(lm: SimpleNamespace, tmp_path: Any) -> None:
    for name, words in {"a.txt": "abc", "b.txt": "de"}.items():
        (tmp_path / name).write_text(words)
    files = tuple(str(tmp_path / name) for name in ("a.txt", "b.txt"))
    config = replace(lm.config.single_config(), text_files=files)
    assert bytes(lm.data.read_text(config).tolist()) == b"abcde"
    train, held_out = lm.data.split_text(replace(config, validation_share=0.4))
    assert (bytes(train.tolist()), bytes(held_out.tolist())) == (b"abc", b"de")


def test_a_missing_file_and_an_empty_one_are_named(lm: SimpleNamespace, tmp_path: Any) -> None:
    config = replace(lm.config.single_config(), text_files=("no.txt",))
    with pytest.raises(ValueError) as caught:
        lm.data.read_text(config)
    assert str(caught.value) == "text_files names 'no.txt': No such file or directory."
    empty = tmp_path / "empty.txt"
    empty.touch()
    with pytest.raises(ValueError) as caught:
        lm.data.read_text(replace(config, text_files=(str(empty),)))
    assert str(caught.value) == f"text_files={(str(empty),)} hold no text."


def test_a_python_without_manual_is_explained(
    lm: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(lm.data.read_text(lm.config.single_config())) > 300_000
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(ValueError) as caught:
        lm.data.read_text(lm.config.single_config())
    assert str(caught.value) == (
        "This Python comes without its manual. Name a text of your own: "
        'text_files=("corpus.txt",).'
    )
