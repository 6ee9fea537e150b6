"""The context, split over ranks: who holds which tokens, and what is refused."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
import torch
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from dream_trainer.configs import RunError
from dream_trainer.parallel.context import causal_mask, context_parallel, split_sequence

World = Callable[[int, int], AbstractContextManager[None]]


@contextmanager
def mesh_of(fake_world: World, rank: int, ranks: int) -> Iterator[DeviceMesh]:
    with fake_world(rank, ranks):
        yield init_device_mesh("cpu", (ranks,), mesh_dim_names=("cp",))


@pytest.mark.parametrize(("rank", "tokens"), [(0, [0, 1, 6, 7]), (1, [2, 3, 4, 5])])
def test_each_rank_holds_a_part_of_head_and_tail(
    fake_world: World, rank: int, tokens: list[int]
) -> None:
    with mesh_of(fake_world, rank, 2) as mesh:
        assert split_sequence(torch.arange(8), 0, mesh).tolist() == tokens
        rows = split_sequence(torch.arange(16).view(2, 8), 1, mesh)
    assert rows.tolist() == [tokens, [token + 8 for token in tokens]]


def test_every_query_sees_the_keys_before_it(fake_world: World) -> None:
    whole = torch.ones(8, 8).tril().bool()
    order = [0, 1, 6, 7, 2, 3, 4, 5]  # As the keys of rank 0 and rank 1 come together.
    for rank, mine in enumerate([order[:4], order[4:]]):
        with mesh_of(fake_world, rank, 2) as mesh:
            mask = causal_mask(4, mesh, torch.device("cpu"))
        assert torch.equal(mask, whole[mine][:, order])


def test_tables_follow_the_tokens_and_come_back_whole(fake_world: World) -> None:
    """A table made for the longest sequence gives a shorter one its first rows."""
    table, batch = torch.arange(100), {"input": torch.arange(8)[None], "name": "a"}
    with (
        mesh_of(fake_world, 1, 2) as mesh,
        context_parallel(mesh, batch, [(batch["input"], 1), (table, 0)], "allgather") as local,
    ):
        assert local["input"].tolist() == [[2, 3, 4, 5]]
        assert local["name"] == "a"
        assert table.tolist() == [2, 3, 4, 5]
    assert table.tolist() == list(range(100))
    assert batch["input"].shape == (1, 8)


def test_attention_is_put_back_even_after_an_error(fake_world: World) -> None:
    batch, before = torch.zeros(1, 8), F.scaled_dot_product_attention
    with (
        mesh_of(fake_world, 0, 2) as mesh,
        pytest.raises(KeyError),
        context_parallel(mesh, batch, [(batch, 1)], "allgather"),
    ):
        assert F.scaled_dot_product_attention is not before
        raise KeyError
    assert F.scaled_dot_product_attention is before


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        (
            [6],
            "A sequence of 6 cannot be split over context_parallel=2: each rank takes two "
            "chunks. Use a multiple of 4.",
        ),
        (
            [8, 4],
            "context_parallel_buffers names sequences of [4, 8] tokens in one batch. Inputs and "
            "targets must be equally long, each with its own sequence dim.",
        ),
    ],
)
def test_lengths_that_cannot_be_split(fake_world: World, lengths: list[int], message: str) -> None:
    batch = [torch.zeros(1, length) for length in lengths]
    with (
        mesh_of(fake_world, 0, 2) as mesh,
        pytest.raises(RunError) as caught,
        context_parallel(mesh, batch, [(tensor, 1) for tensor in batch], "allgather"),
    ):
        pass
    assert str(caught.value) == message


def test_a_mask_is_refused(fake_world: World) -> None:
    batch = torch.zeros(1, 8)
    query = torch.zeros(1, 1, 4, 2)
    with (
        mesh_of(fake_world, 0, 2) as mesh,
        context_parallel(mesh, batch, [(batch, 1)], "allgather"),
        pytest.raises(RunError) as caught,
    ):
        F.scaled_dot_product_attention(query, query, query, attn_mask=torch.ones(4, 4).bool())
    assert str(caught.value) == (
        "Context parallelism supports attention that is causal or full, but "
        "scaled_dot_product_attention was called with an attn_mask. Set "
        "context_parallel=1, or drop the mask."
    )
