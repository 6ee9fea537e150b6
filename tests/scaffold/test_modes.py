"""What `--parallel` means: every sensible combination, in any order, and why not the others."""

from itertools import combinations, permutations

import pytest

from dream_scaffold import resources
from dream_scaffold.errors import DreamError
from dream_scaffold.project.modes import PARTS, read_mode

contract = resources.load_runtime("contract")
DATA = (None, "ddp", "fsdp", "hsdp")
SPLITS = ("cp", "tp", "pp")

COMBINATIONS = [
    parts
    for data in DATA
    for count in range(len(SPLITS) + 1)
    for splits in combinations(SPLITS, count)
    if (parts := (*((data,) if data else ()), *splits))
    if not (data == "ddp" and {"cp", "tp"} & set(splits))
]


@pytest.mark.parametrize("parts", COMBINATIONS, ids="+".join)
def test_a_combination_is_one_mode_in_any_order(parts: tuple[str, ...]) -> None:
    for order in permutations(parts):
        assert read_mode("+".join(order)).name == "+".join(parts)


@pytest.mark.parametrize("parts", COMBINATIONS, ids="+".join)
def test_a_combination_is_a_mesh_of_its_ranks(parts: tuple[str, ...]) -> None:
    """Every part is an axis wider than one rank, and the runtime refuses nothing."""
    mode = read_mode("+".join(parts))
    parameters = mode.parameters()
    sizes = resources.load_runtime("configs").resolve_axes(parameters, mode.ranks).sizes
    wide = {axis for axis, size in sizes.items() if size > 1}
    data = {"ddp": {"dp_replicate"}, "fsdp": {"dp_shard"}, "hsdp": {"dp_replicate", "dp_shard"}}
    expected = data.get(parts[0], {parts[0]}).union(parts[1:])
    assert wide == expected
    assert contract.problems(parameters, parameters.degrees, contract.BY_NAME, "T") == []


HOOKS = {
    "single": [],
    "ddp": ["apply_replicate"],
    "cp": ["apply_fully_shard", "context_parallel_buffers"],
    "tp": ["apply_tensor_parallel"],
    "pp": ["apply_pipeline_parallel"],
    "ddp+pp": ["apply_pipeline_parallel", "apply_replicate"],
    "hsdp+cp+tp+pp": [
        "apply_pipeline_parallel",
        "apply_tensor_parallel",
        "apply_fully_shard",
        "context_parallel_buffers",
    ],
}


@pytest.mark.parametrize("name", HOOKS)
def test_the_contract_says_which_hooks_a_mode_has(name: str) -> None:
    assert read_mode(name).hooks(compile_model=False) == HOOKS[name]


REFUSED = {
    "": (
        "--parallel  is unknown.",
        f"Use one of {', '.join(PARTS)}, alone or joined, such as fsdp+tp.",
    ),
    "fsdp+tpp": (
        "--parallel fsdp+tpp: tpp is unknown.",
        f"Did you mean tp? Known are {', '.join(PARTS)}, alone or joined, such as fsdp+tp.",
    ),
    "tp+fsdp+tp": ("--parallel tp+fsdp+tp names tp twice.", "Use fsdp+tp."),
    "hsdp+ddp+tp": (
        "--parallel hsdp+ddp+tp contradicts itself: a copy of the model on every rank, "
        "and sharded in groups of ranks, replicated over the groups.",
        "Use one of ddp, hsdp.",
    ),
    "tp+single": (
        "--parallel tp+single contradicts itself: "
        "one device, and every layer split over two ranks.",
        "Use one of single, tp.",
    ),
    "ddp+tp": (
        "--parallel ddp+tp: "
        "tensor_parallel=2 beside replicated data parallelism averages wrong gradients.",
        "Use fsdp+tp or hsdp+tp.",
    ),
    "pp+cp+ddp": (
        "--parallel pp+cp+ddp: "
        "ranks that share a sequence shard the model, and ddp keeps it whole.",
        "Use fsdp+cp+pp or hsdp+cp+pp.",
    ),
}


@pytest.mark.parametrize("value", REFUSED)
def test_other_values_are_refused_with_a_remedy(value: str) -> None:
    with pytest.raises(DreamError) as caught:
        read_mode(value)
    assert (caught.value.fact, caught.value.remedy) == REFUSED[value]
