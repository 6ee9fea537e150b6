"""Garbage is collected at the same steps everywhere, and nowhere else."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from dream_trainer.callbacks import Callback
from dream_trainer.callbacks.garbage_collection import GarbageCollectionCallback
from tests.runtime.tiny import Batch, TinyTrainer, batches, config


@pytest.fixture
def collections(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, bool]]]:
    """Of every collection its generation, and whether the collector chose the moment itself."""
    found: list[tuple[int, bool]] = []
    by_hand = False
    collect = gc.collect

    def collected(generation: int = 2) -> int:
        nonlocal by_hand
        by_hand = True
        try:
            return collect(generation)
        finally:
            by_hand = False

    def note(phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            found.append((info["generation"], not by_hand))

    monkeypatch.setattr(gc, "collect", collected)
    gc.callbacks.append(note)
    yield found
    gc.callbacks.remove(note)


class Littering(TinyTrainer):
    """Leaves cycles, enough for the collector to start by itself."""

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        for _ in range(2_000):
            litter: list[Any] = []
            litter.append(litter)
        return super().training_step(batch, batch_idx)


class Steps(Callback):
    """Notes, before each batch, the collections since the one before."""

    def __init__(self, found: list[tuple[int, bool]]) -> None:
        self.found = found
        self.seen: list[list[tuple[int, bool]]] = []

    def pre_fit(self, trainer: Any) -> None:
        self.found.clear()

    def post_train_step(self, trainer: Any, result: Any, batch: Any, batch_idx: int) -> None:
        self.seen.append(self.found[:])
        self.found.clear()


def run(found: list[tuple[int, bool]], *callbacks: Callback, **training: Any) -> Steps:
    steps = Steps(found)
    Littering(config(callbacks=[*callbacks, steps], **training), batches(6)).fit()
    return steps


def test_without_it_the_collector_chooses(collections: list[tuple[int, bool]]) -> None:
    seen = run(collections).seen
    assert sum(chosen for step in seen for _, chosen in step) >= 6


def test_only_at_its_steps(collections: list[tuple[int, bool]]) -> None:
    seen = run(collections, GarbageCollectionCallback(every_n_steps=2)).seen
    assert seen == [[], [(1, False)], [], [(1, False)], [], [(1, False)]]
    assert collections == [(2, False)]  # The end of the epoch.


def test_steps_are_those_of_the_optimizer(collections: list[tuple[int, bool]]) -> None:
    callback = GarbageCollectionCallback(every_n_steps=2, generation=2)
    seen = run(collections, callback, gradient_accumulation_steps=2).seen
    assert seen == [[], [], [], [(2, False)], [], []]


def test_what_set_up_made_is_frozen_until_the_end() -> None:
    frozen: list[int] = []

    class Looks(Callback):
        def pre_train_step(self, trainer: Any, batch: Any, batch_idx: int) -> None:
            frozen.append(gc.get_freeze_count())

    gc.unfreeze()
    TinyTrainer(config(callbacks=[GarbageCollectionCallback(), Looks()]), batches(1)).fit()
    assert frozen[0] > 10_000
    assert gc.get_freeze_count() < 1_000
    assert gc.isenabled()


def test_an_interrupted_run_leaves_the_collector_on() -> None:
    class Fails(TinyTrainer):
        def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
            assert not gc.isenabled()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Fails(config(callbacks=[GarbageCollectionCallback()]), batches(1)).fit()
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        TinyTrainer(config(callbacks=[GarbageCollectionCallback()]), batches(1)).fit()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_never_is_refused() -> None:
    with pytest.raises(ValueError) as raised:
        GarbageCollectionCallback(every_n_steps=0)
    assert str(raised.value) == "every_n_steps=0 would never collect. Use a whole number from 1."
